"""A GPU that is not there: streams and events that keep the time of a model of one.

A stream is a thread that does its work at once and then lets the time pass that the work would have taken on
the GPU. Work says so itself, with `SimStream.spend`. Events are done when the model says so and carry the
model's times, as those of a GPU carry the GPU's: how late this host wakes up is not in them. A step begins
when it has been given to the stream and the one before it has ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from stretto.roles.executor.device_cpu import CpuDevice, CpuEvent, CpuStream

SPIN_SECONDS = 100e-6
"""The last part of a wait, in which the thread only yields: a sleeping one wakes up as late as this."""


class SimStream(CpuStream):
    """Work in order, in modelled time; see `device.Stream`."""

    def __init__(self, fail: Callable[[Exception], None]) -> None:
        self._clock = 0.0
        """When all that the thread has done so far is done on the GPU, `time.monotonic()` seconds."""
        super().__init__(fail)

    def submit(self, work: Callable[[], None]) -> None:
        super().submit(partial(self._do, time.monotonic(), work))

    def record(self, event: CpuEvent) -> None:
        super().submit(partial(self._pass, time.monotonic(), event))

    def wait(self, event: CpuEvent) -> None:
        super().wait(event)
        super().submit(lambda: self._not_before(event.time))

    def spend(self, seconds: float) -> None:
        """What the GPU would take; for work on this stream."""
        self._clock += seconds

    def _do(self, given: float, work: Callable[[], None]) -> None:
        self._not_before(given)
        work()

    def _pass(self, given: float, event: CpuEvent) -> None:
        self._not_before(given)
        sleep_until(self._clock)
        event.fire(self._clock)

    def _not_before(self, moment: float) -> None:
        self._clock = max(self._clock, moment)


class SimDevice(CpuDevice):
    """See `device.Device`. `name` is what people are told; `memory` is what the GPU has left, in bytes."""

    def __init__(self, alarm: Callable[[], None], name: str, memory: int) -> None:
        super().__init__(alarm)
        self.name, self._memory = name, memory

    def stream(self) -> SimStream:
        stream = SimStream(self._failed)
        self._streams.append(stream)
        return stream

    def free_memory(self) -> int:
        return self._memory


def sleep_until(moment: float) -> None:
    """Wait for a moment, `time.monotonic()` seconds; never returns before it."""
    while (left := moment - time.monotonic()) > 0:
        time.sleep(left - SPIN_SECONDS if left > SPIN_SECONDS else 0)
