"""Sequences that run and gain nothing, although the device works."""

from __future__ import annotations

from typing import NamedTuple

from stretto.roles import messages as m
from stretto.roles.scheduler.batch import Batch
from stretto.roles.scheduler.sequence import Retiring, Sequence


class _Mark(NamedTuple):
    """Where a sequence was when it was last seen to move."""

    known: int
    length: int
    at: float
    landed: int


class Stalls:
    """Remembers, from one `look` to the next, how far each running sequence had come."""

    def __init__(self) -> None:
        self._marks: dict[Sequence, _Mark] = {}

    def look(self, batch: Batch, now: float, seconds: float) -> list[Sequence]:
        """Those that have moved at no look for so many seconds, while steps did report."""
        running = [(slot, s) for slot, s in batch.holders.items() if not isinstance(s.state, Retiring)]
        self._marks = {sequence: self._mark(slot, sequence, batch, now) for slot, sequence in running}
        return [
            sequence
            for sequence, mark in self._marks.items()
            if now - mark.at >= seconds and batch.landed > mark.landed
        ]

    def _mark(self, slot: int, sequence: Sequence, batch: Batch, now: float) -> _Mark:
        known, length = int(batch.table.known[slot]), int(batch.table.length[slot])
        mark = self._marks.get(sequence)
        if mark is not None and (mark.known, mark.length) == (known, length):
            return mark
        return _Mark(known, length, now, batch.landed)


def stalled(seconds: float) -> m.Fault:
    """What is said of one."""
    text = f"The request ran for {seconds:g} seconds without any progress, while others went on."
    return m.Fault(500, text, type="server_error", code="request_stalled")
