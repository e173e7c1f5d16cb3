"""An NVIDIA GPU as a device: one compute stream, a copy stream for each direction, and watcher threads.

The host never waits for the compute stream. Inputs go through two pinned buffers with device twins, results
come back through pinned memory, and events say when each may be used again. Watchers block on events with the
interpreter lock released.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from stretto.roles.executor import staging
from stretto.roles.executor.cuda_events import CudaClock, CudaEvent, Watcher


class CudaStream:
    """Launches at once, under the raw stream; see `device.Stream`."""

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda
        self.raw = cuda.Stream()
        self.catch_up()

    def submit(self, work: Callable[[], None]) -> None:
        with self._cuda.stream(self.raw), torch.inference_mode():
            work()

    def record(self, event: CudaEvent) -> None:
        event.record(self.raw)

    def wait(self, event: CudaEvent) -> None:
        self.raw.wait_event(event.raw)

    def catch_up(self) -> None:
        self.raw.wait_stream(self._cuda.current_stream())


class CudaStaging:
    """A pinned buffer and its twin on the device, which carry the inputs of every second step."""

    def __init__(self, cuda: Any, place: torch.device) -> None:
        self._place = place
        self.copied = cuda.Event()
        """Recorded on the copy stream: after it the host may write the pinned buffer again."""
        self.used = cuda.Event()
        """Recorded on the compute stream: after it the device buffer may be overwritten."""
        self.host = torch.empty(0, dtype=torch.uint8)
        self.device = torch.empty(0, dtype=torch.uint8, device=place)

    def reserve(self, size: int, reader: Any) -> None:
        """Make room for `size` bytes. What `reader`, a raw stream, may still use lives on until it has."""
        if size <= self.host.numel():
            return
        if self._place.type == "cuda":
            self.device.record_stream(reader)
        room = 2 * size
        self.host = torch.empty(room, dtype=torch.uint8, pin_memory=self._place.type == "cuda")
        self.device = torch.empty(room, dtype=torch.uint8, device=self._place)

    def write(self, arrays: Sequence[np.ndarray], starts: Sequence[int]) -> None:
        """Let the host write the pinned buffer, once the copy that reads it is done: one two uploads ago."""
        self.copied.synchronize()
        staging.pack(self.host, arrays, starts)


class CudaOutput:
    """Results, fetched into pinned memory by a copy stream; see `device.Output`."""

    def __init__(self, cuda: Any, copies: CudaStream, tensor: torch.Tensor) -> None:
        self._copies, self.tensor = copies, tensor
        self._pinned = torch.zeros(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
        self._written = cuda.Event()

    @property
    def host(self) -> np.ndarray:
        return self._pinned.numpy()

    def fetch(self, stream: CudaStream, event: CudaEvent) -> None:
        self._written.record(stream.raw)
        self._copies.raw.wait_event(self._written)
        self._copies.submit(partial(_copy, self._pinned, self.tensor))
        self._copies.record(event)


class CudaDevice:
    """See `device.Device`. `alarm` is called, on a watcher's thread, when the GPU reports an error.

    `cuda` has the interface of `torch.cuda`, and `place` says where tensors live: tests give others.
    """

    name = "cuda"

    def __init__(
        self, alarm: Callable[[], None], cuda: Any = torch.cuda, place: torch.device | None = None
    ) -> None:
        self._alarm, self._cuda = alarm, cuda
        self._error: Exception | None = None
        self.torch_device = place or torch.device("cuda", cuda.current_device())
        self._to_device, self._to_host = self._new_stream(), self._new_stream()
        self._staging = [CudaStaging(cuda, self.torch_device) for _ in range(2)]
        self._clock = CudaClock(cuda)
        self._graphs: Any = None
        self._watchers: dict[Any, Watcher] = {}
        """By raw stream, of those that somebody waits for: a long transfer keeps no step's result back."""

    def stream(self) -> CudaStream:
        return self._new_stream()

    def event(self) -> CudaEvent:
        return CudaEvent(self._cuda, self._clock)

    def on_done(self, event: CudaEvent, callback: Callable[[], None]) -> None:
        if event.stream not in self._watchers:
            self._watchers[event.stream] = Watcher(self._clock.refresh, self._failed)
        self._watchers[event.stream].watch(event, callback)

    def upload(self, stream: CudaStream, arrays: Sequence[np.ndarray]) -> list[torch.Tensor]:
        starts, size = staging.offsets(arrays)
        buffer = self._next_staging(stream, size)
        buffer.write(arrays, starts)
        self._to_device.raw.wait_event(buffer.used)
        self._to_device.submit(partial(_copy, buffer.device[:size], buffer.host[:size]))
        buffer.copied.record(self._to_device.raw)
        stream.raw.wait_event(buffer.copied)
        return staging.unpack(buffer.device, arrays, starts)

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """See `device.Device`. All graphs share one pool of memory: they run on one stream, one at a time.

        `torch.cuda.graph` would wait for the GPU first; to begin and end by hand does not. Other threads, as
        the watcher, go on with what they do.
        """
        if self._graphs is None:
            self._graphs = self._cuda.graph_pool_handle()
        graph = self._cuda.CUDAGraph()
        graph.capture_begin(pool=self._graphs, capture_error_mode="thread_local")
        try:
            work()
        finally:
            graph.capture_end()
        replay: Callable[[], None] = graph.replay
        return replay

    def output(self, count: int, dtype: torch.dtype) -> CudaOutput:
        tensor = torch.empty(count, dtype=dtype, device=self.torch_device)  # a fill would race with streams
        return CudaOutput(self._cuda, self._to_host, tensor)

    def check(self) -> None:
        if self._error is not None:
            raise self._error

    def free_memory(self) -> int:
        return self._cuda.mem_get_info()[0]

    def total_memory(self) -> int:
        return self._cuda.mem_get_info()[1]

    def close(self) -> None:
        for watcher in self._watchers.values():
            watcher.close()

    def _new_stream(self) -> CudaStream:
        return CudaStream(self._cuda)

    def _next_staging(self, stream: CudaStream, size: int) -> CudaStaging:
        """The other buffer, with enough room."""
        last, buffer = self._staging
        last.used.record(stream.raw)
        self._staging = [buffer, last]
        with self._cuda.stream(self._to_device.raw):
            buffer.reserve(size, stream.raw)
        return buffer

    def _failed(self, error: Exception) -> None:
        """Hand an error to the role, which raises it: see `check`."""
        self._error = error
        self._alarm()


def _copy(target: torch.Tensor, source: torch.Tensor) -> None:
    target.copy_(source, non_blocking=True)
