"""How fast one answer came, as its reader saw it."""

from __future__ import annotations

import time
from collections.abc import Callable

from stretto.roles.client.frames import Completion

_ENDINGS = {"length": "cut at the length limit", "abort": "stopped"}


class Stopwatch:
    """Started with the request; `tick` at every delta."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._began = now()
        self._first: float | None = None

    def tick(self) -> None:
        """Text has come."""
        if self._first is None:
            self._first = self._now()

    def report(self, completion: Completion) -> str:
        """Tokens, their rate after the first (1 / TPOT), and the time to the first text (TTFT)."""
        tokens = completion.usage.completion_tokens
        parts = [f"{tokens} token{'' if tokens == 1 else 's'}"]
        if self._first is not None:
            seconds = self._now() - self._first
            if tokens > 1 and seconds > 0:
                parts.append(f"{(tokens - 1) / seconds:.1f} tok/s")
            parts.append(f"first after {self._first - self._began:.2f} s")
        if ending := _ENDINGS.get(completion.finish_reason):
            parts.append(ending)
        return " · ".join(parts)
