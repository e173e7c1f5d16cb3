"""The CUDA device on a CPU that keeps a record: late streams, and a Violation for what a GPU would not bear.

* The host waits for the compute stream: an event of it, or an operation whose result the host needs.
* A buffer is written or read again before whoever used it last is known to be done.
* Work uses what nothing has made it wait for.
* A captured launch looks at other memory, or decides otherwise, than when it was captured.

`World.log` lists what streams were given and did.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
import torch

from stretto.roles.executor.cuda_events import CudaEvent
from stretto.roles.executor.device_cuda import CudaDevice, CudaOutput, CudaStaging, CudaStream
from stretto.tests.roles.executor.late_cuda import Seen, Violation, World
from stretto.tests.roles.executor.watching import Footprint, NoWaiting, Touching, address


class RecordingStream(CudaStream):
    """Gives its work to the late stream."""

    def submit(self, work: Callable[[], None]) -> None:
        self.raw.put(work=work)


class RecordingStaging(CudaStaging):
    """Whose pinned half the host touches when it writes."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, torch.device("cpu"))
        self._world, self._number = world, number
        self._share()

    def reserve(self, size: int, reader: Any) -> None:
        before = self.host
        super().reserve(size, reader)
        if self.host is not before:
            self._share()

    def write(self, arrays: Sequence[np.ndarray], starts: Sequence[int]) -> None:
        self.copied.synchronize()
        self._world.touch_from_host(address(self.host))
        super().write(arrays, starts)

    def _share(self) -> None:
        for name, tensor in (("pinned", self.host), ("device", self.device)):
            if len(tensor):
                self._world.memory.share(tensor, f"{name} input {self._number}")


class RecordingOutput(CudaOutput):
    """Whose pinned half the host touches when it reads."""

    def __init__(self, world: World, copies: RecordingStream, tensor: torch.Tensor) -> None:
        super().__init__(world, copies, tensor)
        self._world = world
        for name, part in (("device", tensor), ("pinned", self._pinned)):
            world.memory.share(part, f"{name} output")

    @property
    def host(self) -> np.ndarray:
        self._world.touch_from_host(address(self._pinned))
        return super().host


class RecordingDevice(CudaDevice):
    """See the module. `world` decides what is done when; `alarm` is never called: violations are raised."""

    name = "recording"

    def __init__(self, alarm: Callable[[], None], world: World) -> None:
        self.world = world
        world.watch = self._watch_work
        super().__init__(alarm, world, torch.device("cpu"))
        self._staging = [RecordingStaging(world, number) for number in range(2)]

    def _new_stream(self) -> RecordingStream:
        return RecordingStream(self.world)

    def output(self, count: int, dtype: torch.dtype) -> RecordingOutput:
        tensor = torch.zeros(max(1, count), dtype=dtype)[:count]
        return RecordingOutput(self.world, self._to_host, tensor)

    def on_done(self, event: CudaEvent, callback: Callable[[], None]) -> None:
        event.raw.mark.callbacks.append(callback)

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        first: list[Any] = []

        def replay() -> None:
            with Footprint() as footprint:
                work()
            if not first:
                first.extend(footprint.calls)
            for before, now in zip_longest(first, footprint.calls):
                if before != now:
                    raise Violation(f"a graph would still do {before}, and not {now}")

        return replay

    def _watch_work(self, name: str, seen: Seen, work: Callable[[], None]) -> None:
        memory = self.world.memory

        def touch(at: int) -> None:
            if at in memory.names:
                memory.touch(at, name, seen)

        own = name in self.world.may_wait_for
        with torch.inference_mode(), Touching(touch, may_wait=own):
            if own:
                work()
            else:
                with NoWaiting():
                    work()
