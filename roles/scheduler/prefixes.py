"""Prefixes as keys, so that requests which share one find each other without comparing tokens.

A prompt's keys are one for each whole block of `grain` tokens, each made from the one before it (as the block
hashes of vLLM's prefix cache): equal keys mean equal salt and equal tokens up to the block's end. A collision
would make a request wait for the wrong one, or in the wrong place, and never read its KV.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

from stretto.roles.scheduler.pages import Ints
from stretto.roles.scheduler.sequence import Sequence


def keys_of(tokens: Ints, salt: str, grain: int) -> list[int]:
    """Keys of the prefixes of `grain`, 2 * `grain` ... tokens."""
    data, width, key = tokens.tobytes(), 4 * grain, hash(salt)
    keys = []
    for at in range(0, len(data) - width + 1, width):
        key = hash((key, data[at : at + width]))
        keys.append(key)
    return keys


class Pending:
    """Prefixes that running sequences are computing and that the tree does not have yet."""

    def __init__(self) -> None:
        self._owners: dict[int, Sequence] = {}
        """By key: the first sequence that computes this prefix."""

    def begin(self, sequence: Sequence) -> None:
        """A sequence has been admitted; its prompt is on its way."""
        for key in sequence.keys:
            self._owners.setdefault(key, sequence)

    def finish(self, sequence: Sequence) -> None:
        """Its prompt is in the tree, or will never be."""
        for key in sequence.keys:
            if self._owners.get(key) is sequence:
                del self._owners[key]

    def longest(self, sequence: Sequence) -> tuple[int, Sequence] | None:
        """Who computes the longest prefix of this sequence, in blocks; None where nobody computes any."""
        keys, owners = sequence.keys, self._owners
        low, high = 0, len(keys) if owners else 0
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if keys[middle] in owners else (low, middle)
        return (low, owners[keys[low - 1]]) if low else None


class Ranking:
    """Waiting sequences by the length of their known prefix, in blocks, then by age.

    What the tree learns raises only those that wait for just that key: a publication costs what it changes.
    What it forgets is noticed when the sequence comes up. `known` tells how many blocks the tree has now.
    """

    def __init__(self, known: Callable[[Sequence], int]) -> None:
        self._known = known
        self._depths: dict[Sequence, int] = {}
        """Blocks that the tree had when we last looked."""
        self._heap: list[tuple[int, int, int, int, Sequence]] = []
        """(-depth, age, uid, tie, sequence), stale entries among them: also of another with the same uid."""
        self._ties = count()
        self._next: dict[int, dict[Sequence, None]] = {}
        """By the key of the first block that the tree does not have; the sequences in order."""

    def add(self, sequence: Sequence) -> None:
        """It waits from now on."""
        self._put(sequence, self._known(sequence))

    def remove(self, sequence: Sequence) -> None:
        """It waits no more."""
        depth = self._depths.pop(sequence)
        if depth < len(sequence.keys):
            peers = self._next[sequence.keys[depth]]
            del peers[sequence]
            if not peers:
                del self._next[sequence.keys[depth]]
        if not self._depths:
            self._heap.clear()

    def learn(self, keys: list[int]) -> None:
        """The tree has the prefixes of these keys now, first to last."""
        for index, key in enumerate(keys):
            for sequence in list(self._next.get(key, ())):
                self._move(sequence, _common(sequence.keys, keys, index + 1))

    def first(self) -> Sequence:
        """The one with the longest known prefix; there must be one."""
        while True:
            negative, *_, sequence = self._heap[0]
            if self._depths.get(sequence) != -negative:
                heapq.heappop(self._heap)
            elif (depth := self._known(sequence)) == -negative:
                return sequence
            else:
                self._move(sequence, depth)

    def _move(self, sequence: Sequence, depth: int) -> None:
        self.remove(sequence)
        self._put(sequence, depth)

    def _put(self, sequence: Sequence, depth: int) -> None:
        self._depths[sequence] = depth
        if depth < len(sequence.keys):
            self._next.setdefault(sequence.keys[depth], {})[sequence] = None
        heapq.heappush(self._heap, (-depth, sequence.age, sequence.uid, next(self._ties), sequence))


def _common(ours: list[int], theirs: list[int], at: int) -> int:
    """How many keys both start with, at least `at`."""
    while at < min(len(ours), len(theirs)) and ours[at] == theirs[at]:
        at += 1
    return at
