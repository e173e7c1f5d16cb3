"""The order in which waiting sequences are admitted."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from stretto.roles.scheduler.sequence import Sequence


class Queue:
    """Lower priorities first; among equals those that ran before, then first come, first served.

    Nobody is admitted past `head`. A sequence that is *held* waits for its leader, in nobody's way.
    Operations take a binary search and the shift of a list of pointers.
    """

    def __init__(self) -> None:
        self._ready: list[Sequence] = []
        """By rank, which does not change while a sequence waits."""
        self._held: dict[int, list[Sequence]] = {}
        """By the uid of the leader."""

    def add(self, sequence: Sequence) -> None:
        """A new sequence, or one that was retracted."""
        insort(self._ready, sequence, key=_rank)

    def hold(self, sequence: Sequence) -> None:
        """A sequence that is to wait until its leader is released."""
        assert sequence.request.leader is not None
        self._held.setdefault(sequence.request.leader, []).append(sequence)

    def release(self, leader: int) -> None:
        """Those that are held for the leader wait like anyone from now on."""
        for sequence in self._held.pop(leader, ()):
            self.add(sequence)

    def head(self) -> Sequence | None:
        """The next one to admit."""
        return self._ready[0] if self._ready else None

    def remove(self, sequence: Sequence) -> None:
        """It was admitted, or ended while it waited."""
        leader = sequence.request.leader
        if leader is not None and sequence in (held := self._held.get(leader, [])):
            held.remove(sequence)
            return
        index = bisect_left(self._ready, _rank(sequence), key=_rank)
        if index == len(self._ready) or self._ready[index] is not sequence:
            raise AssertionError(f"request {sequence.uid} is not in the queue")
        del self._ready[index]

    @property
    def held(self) -> list[Sequence]:
        """Sequences that wait for their leader."""
        return [sequence for held in self._held.values() for sequence in held]

    def __iter__(self) -> Iterator[Sequence]:
        yield from self._ready
        yield from self.held

    def __len__(self) -> int:
        return len(self._ready) + sum(map(len, self._held.values()))


def _rank(sequence: Sequence) -> tuple[int, bool, int, int]:
    return sequence.request.priority, sequence.cached is None, sequence.age, sequence.uid
