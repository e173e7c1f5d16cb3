"""The order in which waiting sequences are admitted."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from stretto.roles.scheduler.sequence import Sequence


class FirstCome:
    """First come, first served; a retracted sequence comes before all that were never admitted.

    Every operation takes constant time. A policy decides in `head` alone: nobody is admitted past it.
    """

    def __init__(self) -> None:
        self._queue: OrderedDict[int, Sequence] = OrderedDict()

    def add(self, sequence: Sequence) -> None:
        """A new sequence."""
        self._queue[sequence.uid] = sequence

    def put_back(self, sequence: Sequence) -> None:
        """A retracted sequence; of several, the youngest is put back first."""
        self._queue[sequence.uid] = sequence
        self._queue.move_to_end(sequence.uid, last=False)

    def head(self) -> Sequence | None:
        """The next one to admit."""
        return next(iter(self._queue.values()), None)

    def remove(self, sequence: Sequence) -> None:
        """It was admitted, or ended while it waited."""
        del self._queue[sequence.uid]

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._queue.values())

    def __len__(self) -> int:
        return len(self._queue)
