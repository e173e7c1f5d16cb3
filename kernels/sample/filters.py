"""Top-k, top-p and min-p as one depth, exactly and without sorting.

A threshold is found by its bits, most significant first: depths are not negative, so they are ordered like
their bit patterns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stretto.kernels import simd
from stretto.kernels.sample.noise import exp

BUCKETS = 1 << 11
_ZERO, _ONE, _INF = np.float32(0), np.float32(1), np.float32(np.inf)
_UNIT = np.float32(1 << 40)
_DEEP = np.float32(80)


@simd.device()
def _fill_masses(masses: Any, depths: Any, limit: Any, scratch: Any) -> Any:
    """Masses of the tokens no deeper than `limit`, 0 for the others; returns their sum."""
    total = np.int64(0)
    for i in range(0, depths.size, simd.LANES):
        depth = simd.load(depths, i)
        near = simd.where_less(depth, simd.splat(_DEEP), depth, simd.splat(_DEEP))
        mass = simd.mul(exp(simd.minus(near)), simd.splat(_UNIT))
        mass = simd.where_less(simd.splat(limit), depth, simd.splat(_ZERO), mass)
        simd.store(scratch, 0, mass)
        for lane in range(simd.LANES):
            whole = np.int64(scratch[lane])
            masses[i + lane] = whole
            total += whole
    return total


@simd.device()
def _reach(keys: Any, masses: Any, count: int, target: Any, buckets: Any) -> Any:
    """The smallest key such that the tokens with keys up to it hold at least `target` mass.

    keys: int32, not negative. Three rounds over 11, 10 and 10 bits, each within the bucket that the last
    one chose.
    """
    prefix, before = np.int64(0), np.int64(0)
    for shift, bits in ((20, 11), (10, 10), (0, 10)):
        buckets[:] = 0
        for i in range(count):
            key = np.int64(keys[i])
            if key >> (shift + bits) == prefix:
                buckets[key >> shift & ((1 << bits) - 1)] += masses[i]
        chosen = 0
        while chosen < (1 << bits) - 1 and np.float64(before + buckets[chosen]) < target:
            before += buckets[chosen]
            chosen += 1
        prefix = prefix << bits | chosen
    return prefix


@simd.device()
def deepest(
    depths: Any, count: int, top_k: int, top_p: Any, min_p: Any, masses: Any, buckets: Any, scratch: Any
) -> Any:
    """The depth down to which the three filters keep tokens."""
    keys, limit = depths.view(np.int32), _INF
    found = np.empty(1, np.int32)
    if 0 < top_k < count:
        masses[:] = 1
        found[0] = _reach(keys, masses, count, np.float64(top_k), buckets)
        limit = found.view(np.float32)[0]
    if top_p < _ONE:
        total = _fill_masses(masses, depths, limit, scratch)
        found[0] = _reach(keys, masses, count, np.float64(top_p) * np.float64(total), buckets)
        limit = found.view(np.float32)[0]
    if min_p > _ZERO:
        limit = min(limit, np.float32(-np.log(np.float64(min_p))))
    return limit
