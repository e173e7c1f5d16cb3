"""Blows against the processes of a server: killed, or frozen until the supervisor finds out."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import signal
import time
from collections.abc import Sequence
from typing import NamedTuple

import psutil

VICTIMS = ("executor", "scheduler", "tokenizer", "detokenizer")
_TITLE = re.compile(r"stretto(?:: |\.roles\.actor )(\w+)")
TWO_AT_ONCE = 0.2
FREEZE = 0.25
"""Shares of the blows that hit two roles, and that freeze instead of kill."""


class Blow(NamedTuple):
    """What was done to which roles, and when (`time.monotonic()`)."""

    at: float
    roles: tuple[str, ...]
    how: str

    def __str__(self) -> str:
        return f"{self.how} {'+'.join(self.roles)}"


def processes(supervisor: int) -> list[tuple[str, psutil.Process]]:
    """(role, process) of every child that plays one, those that boot included."""
    found = []
    for child in psutil.Process(supervisor).children():
        with contextlib.suppress(psutil.Error):
            if match := _TITLE.search(" ".join(child.cmdline())):
                found.append((match[1], child))
    return found


class Havoc:
    """Strikes random roles every few seconds; the same seed chooses the same blows."""

    def __init__(self, supervisor: int, every: float, victims: Sequence[str], seed: int = 0) -> None:
        self._supervisor, self._every, self._victims = supervisor, every, victims
        self._random = random.Random(seed)
        self.blows: list[Blow] = []

    async def run(self, seconds: float) -> None:
        """Go on for so long."""
        end = time.monotonic() + seconds
        while (wait := self._every * self._random.uniform(0.5, 1.5)) < end - time.monotonic():
            await asyncio.sleep(wait)
            self.strike()

    def strike(self) -> None:
        """One blow."""
        two = len(self._victims) > 1 and self._random.random() < TWO_AT_ONCE
        roles = tuple(self._random.sample(self._victims, 2 if two else 1))
        freeze = self._random.random() < FREEZE
        for role, process in processes(self._supervisor):
            if role in roles:
                with contextlib.suppress(psutil.Error):
                    process.send_signal(signal.SIGSTOP if freeze else signal.SIGKILL)
        self.blows.append(Blow(time.monotonic(), roles, "freeze" if freeze else "kill"))
