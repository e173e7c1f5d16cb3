"""What wakes a role at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


class Alarm:
    """Calls `wake` at one time, and at no other; for use on a running loop."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._timer: asyncio.TimerHandle | None = None
        self.at: float | None = None
        """The time it is set for, `time.monotonic()` seconds; None: for none."""

    def set(self, at: float | None) -> None:
        """Call at this time instead."""
        if at == self.at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self.at, self._timer = at, None
        if at is not None:
            self._timer = asyncio.get_running_loop().call_later(at - time.monotonic(), self.ring)

    def ring(self) -> None:
        """The time has come."""
        self.at = self._timer = None
        self._wake()
