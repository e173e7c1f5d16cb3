"""How well the device is kept busy, from the clocks that come with each result."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from stretto.roles import messages as m


class Counter(Protocol):
    """The part of `roles.metrics.Meter` that is needed here."""

    def add(self, name: str, amount: float = 1.0) -> None: ...


class Overlap:
    """Counts steps that were queued before the one ahead of them had ended."""

    def __init__(self, meter: Counter) -> None:
        self._meter = meter
        self._cold: deque[bool] = deque()
        """Of each plan in flight."""
        self._last_end: float | None = None

    def planned(self, plan: m.Plan) -> None:
        """A plan is on its way to the device."""
        self._cold.append(plan.cold)

    def reported(self, clock: m.Clock) -> None:
        """The oldest plan in flight has run."""
        meter, cold = self._meter, self._cold.popleft()
        meter.add("steps_total")
        meter.add("device_busy_seconds_total", clock.ended - clock.started)
        meter.add("device_idle_seconds_total", clock.idle)
        if self._last_end is not None and not cold:
            meter.add("steps_followed_total")
            if clock.queued <= self._last_end:
                meter.add("steps_ahead_total")
        self._last_end = clock.ended

    def restart(self) -> None:
        """The device is a new one: nothing is in flight and nothing went before."""
        self._cold.clear()
        self._last_end = None
