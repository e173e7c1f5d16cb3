"""The CPU as a device: every stream is a thread that takes work from a queue.

The role's loop stays responsive while a step computes, and the next step waits in the queue meanwhile. The
threads block when there is nothing to do: an idle server uses no CPU.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import torch


class CpuEvent:
    """An event that a stream's thread passes; see `device.Event`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], object]] = []
        self._time: float | None = None

    @property
    def done(self) -> bool:
        return self._time is not None

    @property
    def time(self) -> float:
        if self._time is None:
            raise RuntimeError("an event has no time before it is done")
        return self._time

    def fire(self, at: float | None = None) -> None:
        """Mark the event as done, now or `at` another time; called by the stream's thread."""
        with self._lock:
            self._time = time.monotonic() if at is None else at
        for callback in self._callbacks:
            callback()

    def on_done(self, callback: Callable[[], object]) -> None:
        """Call back when done: from the stream's thread, or right now."""
        with self._lock:
            if not self.done:
                self._callbacks.append(callback)
                return
        callback()

    def wait(self) -> None:
        """Block the calling stream's thread until the event is done."""
        passed = threading.Event()
        self.on_done(passed.set)
        passed.wait()


class CpuStream:
    """A worker thread and its queue; see `device.Stream`."""

    def __init__(self, fail: Callable[[Exception], None]) -> None:
        self._fail = fail
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="stretto-stream", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], None]) -> None:
        self._queue.put(work)

    def record(self, event: CpuEvent) -> None:
        self._queue.put(event.fire)

    def wait(self, event: CpuEvent) -> None:
        self._queue.put(event.wait)

    def catch_up(self) -> None:
        """What the calling thread does is done at once."""

    def close(self) -> None:
        """Finish what is queued, then end the thread."""
        self._queue.put(None)
        self._thread.join()

    @torch.inference_mode()
    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            try:
                work()
            except Exception as error:  # handed to the role, which raises it: see CpuDevice.check
                self._fail(error)
                return


class CpuOutput:
    """Results that the host reads where the device wrote them; see `device.Output`."""

    def __init__(self, count: int, dtype: torch.dtype) -> None:
        self.tensor = torch.zeros(count, dtype=dtype)
        self.host = self.tensor.numpy()

    def fetch(self, stream: CpuStream, event: CpuEvent) -> None:
        stream.record(event)


class CpuDevice:
    """See `device.Device`. `alarm` is called, on a stream's thread, when work has failed."""

    name = "cpu"
    torch_device = torch.device("cpu")

    def __init__(self, alarm: Callable[[], None]) -> None:
        self._alarm = alarm
        self._error: Exception | None = None
        self._streams: list[CpuStream] = []

    def stream(self) -> CpuStream:
        stream = CpuStream(self._failed)
        self._streams.append(stream)
        return stream

    def event(self) -> CpuEvent:
        return CpuEvent()

    def on_done(self, event: CpuEvent, callback: Callable[[], None]) -> None:
        event.on_done(callback)

    def upload(self, stream: CpuStream, arrays: Sequence[np.ndarray]) -> list[torch.Tensor]:
        return [torch.from_numpy(array) for array in arrays]

    def output(self, count: int, dtype: torch.dtype) -> CpuOutput:
        return CpuOutput(count, dtype)

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        return work

    def check(self) -> None:
        if self._error is not None:
            raise self._error

    def free_memory(self) -> int:
        """See `free_host_memory`."""
        return free_host_memory()

    def total_memory(self) -> int:
        """Of the machine."""
        return _meminfo(Path("/proc/meminfo"), "MemTotal")

    def close(self) -> None:
        for stream in self._streams:
            stream.close()

    def _failed(self, error: Exception) -> None:
        self._error = error
        self._alarm()


def free_host_memory() -> int:
    """Bytes: `MemAvailable`, or what the control group still allows where that is less."""
    return int(min(_meminfo(Path("/proc/meminfo"), "MemAvailable"), _cgroup_room(Path("/sys/fs/cgroup"))))


def _meminfo(meminfo: Path, field: str) -> int:
    fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    return int(fields[field].split()[0]) << 10


def _cgroup_room(cgroup: Path) -> float:
    """Bytes left under a version 2 memory limit, as a container has it; infinity where there is none."""
    try:
        limit = (cgroup / "memory.max").read_text().strip()
        used = int((cgroup / "memory.current").read_text())
        stat = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
    except FileNotFoundError:
        return float("inf")
    reclaimable = int(stat.get("inactive_file", 0))
    return float("inf") if limit == "max" else max(0, int(limit) - used + reclaimable)
