"""Points in the order of a GPU's streams: when they came to pass on the host's clock, and who is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

ANCHOR_SECONDS = 10.0
"""How long one anchor serves: an event's float32 milliseconds resolve 1 us over this span."""


class CudaClock:
    """Maps CUDA events onto `time.monotonic()` through an anchor: an event whose host time is known.

    The anchor is recorded on a stream of its own, which is empty, so that waiting for it takes microseconds.
    """

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda
        self._stream = cuda.Stream()
        self._anchor = self._drop_anchor()

    def time(self, raw: Any) -> float:
        """Host time of a recorded event that is done, in seconds."""
        anchor, seconds = self._anchor
        return seconds + anchor.elapsed_time(raw) / 1e3

    def refresh(self) -> None:
        """Drop a new anchor when the last one is old; called by watchers."""
        if time.monotonic() - self._anchor[1] > ANCHOR_SECONDS:
            self._anchor = self._drop_anchor()

    def _drop_anchor(self) -> tuple[Any, float]:
        event = self._cuda.Event(enable_timing=True)
        event.record(self._stream)
        event.synchronize()
        return event, time.monotonic()


class CudaEvent:
    """A CUDA event with timing; see `device.Event`."""

    def __init__(self, cuda: Any, clock: CudaClock) -> None:
        self.raw = cuda.Event(enable_timing=True, blocking=True)
        self.stream: Any = None
        """The raw stream that it was recorded on."""
        self._clock = clock

    def record(self, stream: Any) -> None:
        """Record on a raw stream. CUDA calls an event that was never recorded done; this one is not."""
        self.raw.record(stream)
        self.stream = stream

    @property
    def done(self) -> bool:
        return self.stream is not None and self.raw.query()

    @property
    def time(self) -> float:
        return self._clock.time(self.raw)


class Watcher:
    """A thread that waits for events of one stream, which come to pass in order, and calls back.

    passed: called after each. failed: called, last of all, with what the GPU reports.
    """

    def __init__(self, passed: Callable[[], None], failed: Callable[[Exception], None]) -> None:
        self._passed, self._failed = passed, failed
        self._queue: SimpleQueue[tuple[CudaEvent, Callable[[], None]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._watch, name="stretto-events", daemon=True)
        self._thread.start()

    def watch(self, event: CudaEvent, callback: Callable[[], None]) -> None:
        """Call back once the event is done."""
        self._queue.put((event, callback))

    def close(self) -> None:
        """End when all events given so far are done."""
        self._queue.put(None)
        self._thread.join()

    def _watch(self) -> None:
        while (item := self._queue.get()) is not None:
            event, callback = item
            try:
                event.raw.synchronize()
                self._passed()
            except Exception as error:
                self._failed(error)
                return
            callback()
