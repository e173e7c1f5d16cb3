"""What a simulated model says: a token for each seed and position, and an end where one is wanted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_GOLDEN, _MIX_1, _MIX_2 = (
    np.uint64(value) for value in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


class Script:
    """Tokens of a vocabulary's second quarter, which in every family holds ordinary words.

    ends: the ids that end an output. length: every output ends with the first of them, as its token of that
    number; 0: none does.
    """

    def __init__(self, vocabulary: int, ends: Sequence[int], length: int = 0) -> None:
        words = np.arange(vocabulary // 4, vocabulary // 2, dtype=np.int32)
        self._words = np.setdiff1d(words, np.array(ends, np.int32))
        self._end, self._length = (ends[0] if ends else None), length

    def __call__(self, seeds: np.ndarray, positions: np.ndarray, outputs: np.ndarray) -> np.ndarray:
        """int32 [n]: tokens at `positions`, int64 [n], of sequences with `seeds`, uint64 [n]; `outputs`,
        int64 [n], are the numbers of output tokens before them.
        """
        with np.errstate(over="ignore"):
            tokens = self._words[_mixed(seeds, positions) % np.uint64(len(self._words))]
        if self._end is not None and self._length:
            tokens[outputs == self._length - 1] = self._end
        return tokens


def _mixed(seeds: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014)."""
    state = seeds + _GOLDEN * (positions.astype(np.uint64) + np.uint64(1))
    state = (state ^ (state >> np.uint64(30))) * _MIX_1
    state = (state ^ (state >> np.uint64(27))) * _MIX_2
    return state ^ (state >> np.uint64(31))
