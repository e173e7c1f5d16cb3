"""Which sequence kills the device: found by running those alone that might.

A loss of the device says nothing about a sequence that has gained tokens since the loss before, or that no
step in flight touched. Who had neither excuse twice is a suspect. Suspects run alone, one at a time and
before everybody else, until they have gained tokens; one that is alone in flight when the device dies is
guilty. A SIGKILL may come for want of memory, or for no reason that has to do with requests: of that it takes
two.
"""

from __future__ import annotations

from collections.abc import Iterable

from stretto.roles.scheduler.sequence import Sequence

STRIKES = 2
"""Losses without an excuse that make a suspect."""
ALONE = {False: 1.0, True: 0.5}
"""Weight of being alone in flight when the device dies, by whether it was killed; who has 1 is guilty."""
GAIN = 3
"""Tokens that show that a sequence is harmless. The replay itself brings one, and a step may be in flight
behind it: neither says that a step like the deadly one went well."""


class Suspects:
    """The sequences that have to show that they are harmless."""

    def __init__(self) -> None:
        self._waiting: dict[int, Sequence] = {}
        """By uid, in the order in which they are tried."""

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._waiting)

    def first(self) -> Sequence:
        """Whose turn it is."""
        return next(iter(self._waiting.values()))

    def forget(self, sequence: Sequence) -> None:
        """It has ended, or gained a token; nothing happens where it was no suspect."""
        if self._waiting.get(sequence.uid) is sequence:
            del self._waiting[sequence.uid]

    def cleared(self, sequence: Sequence, tokens: int) -> bool:
        """It has so many tokens now; whether it is harmless and is to make room for the next suspect."""
        if tokens - sequence.mark < GAIN:
            return False
        sequence.strikes, sequence.guilt = 0, 0.0
        self.forget(sequence)
        return bool(self._waiting)

    def judge(
        self, survivors: Iterable[tuple[Sequence, int]], in_flight: set[Sequence], killed: bool
    ) -> Sequence | None:
        """The device was lost, or `killed`; returns the sequence that is guilty of it, if one is.

        `survivors`: sequences that held a slot, and how many tokens each has. `in_flight`: those that a step
        in flight touched.
        """
        alone = next(iter(in_flight)) if len(in_flight) == 1 else None
        guilty = None
        if alone is not None and alone.strikes >= STRIKES:
            alone.guilt += ALONE[killed]
            guilty = alone if alone.guilt >= 1 else None
        for sequence, tokens in survivors:
            if tokens - sequence.mark >= GAIN:
                sequence.strikes, sequence.guilt = 0, 0.0
            elif sequence in in_flight:
                sequence.strikes += 1
            sequence.mark = tokens
        suspects = (s for s, _ in survivors if s.strikes >= STRIKES and s is not guilty)
        self._waiting.update((sequence.uid, sequence) for sequence in suspects)
        return guilty
