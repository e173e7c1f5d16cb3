"""What kernels ask of a row of logits, count values from `start` on."""

from __future__ import annotations

from typing import Any

import numpy as np

from stretto.kernels import simd

_INF = np.float32(np.inf)


@simd.device()
def largest(logits: Any, start: int, count: int) -> Any:
    """The largest logit of a row; NaN if there is one."""
    lowest = simd.splat(-_INF)
    best = lowest
    whole = count - count % simd.LANES
    for i in range(0, whole, simd.LANES):
        best = simd.maximum(best, simd.load(logits, start + i))
    rest = count - whole
    best = simd.maximum(best, simd.keep_first(simd.load_first(logits, start + whole, rest), rest, lowest))
    return simd.max_lanes(best)


@simd.device()
def first_equal(logits: Any, start: int, count: int, value: Any) -> int:
    """Index in the row of the first logit equal to `value`; -1 where there is none."""
    for i in range(count):
        if logits[start + i] == value:
            return i
    return -1
