"""How much of its possible output a running sequence is expected to need.

Most outputs end long before `max_tokens`: admitting by the maximum leaves most of the pool empty. The ratio
starts high, sinks with every step that goes well, and jumps after a retraction (SGLang's new-token ratio,
`managers/scheduler.py`).

The constants are from `stretto bench cache`, 700 requests: with SGLang's own (0.7, 0.1, 600, 20 and all of
the share) running sequences fill 80 % of the pool and 8 are retracted; with these 89 %, 48 are retracted, and
all is done in 10 % fewer steps. Going further (0.2, 0.02, 100, 5, a third) retracts 260 for another 4 %.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]

START, FLOOR = 0.3, 0.05
STEPS = 200
"""Steps in which the ratio sinks from start to floor."""
AHEAD = 5
"""Tokens that every sequence is to get before the next retraction."""
SHARE = 0.5
"""Of what sequences had generated, on average, when pages ran out."""
CLIP = 4096
"""Tokens of possible output that count at most."""


class NewTokenRatio:
    """`value` is what admission goes by."""

    def __init__(self) -> None:
        self.value = START

    def sink(self) -> None:
        """A step has been planned."""
        self.value = max(FLOOR, self.value - (START - FLOOR) / STEPS)

    def jump(self, generated: int, possible: int, sequences: int) -> None:
        """Pages ran out when `sequences` had `generated` tokens of the `possible` ones."""
        self.value = max(self.value, min(1.0, SHARE * (generated + AHEAD * sequences) / max(possible, 1)))


def expected_tokens(room: Counts, ratio: float) -> Counts:
    """Positions that sequences will fill, which may have `room` more tokens each: the last is never fed."""
    possible = np.clip(room - 1, 0, CLIP)
    return np.maximum(np.ceil(ratio * possible).astype(np.int64), np.minimum(possible, 1))
