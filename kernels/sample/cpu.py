"""Sampling on the CPU: a row is a unit of work, and no vocabulary is ever sorted.

An unfiltered row is one pass of vector arithmetic. A filter's depth is found by its bits, most significant first:
depths are not negative, so they are ordered like their bit patterns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from stretto.kernels import simd
from stretto.kernels.pool import arguments, claim, floats, int32s, int64s, kernel, unpack
from stretto.kernels.sample.philox import BLOCK, philox, unsigned

_Args = arguments("logits temperature top_k top_p min_p seeds positions out rows vocabulary stride")

_ZERO, _ONE, _HALF = np.float32(0), np.float32(1), np.float32(0.5)
_INF = np.float32(np.inf)
_STEP, _HALF_STEP, _MOST = np.float32(2**-32), np.float32(2**-33), np.float32(1 - 2**-24)
_UNIT = np.float32(1 << 40)
_LARGEST_NOISE = np.float32(23)
"""No noise is larger: v is at least 2 ** -33, and 33 log 2 is 22.9."""
_DEEP = np.float32(80)
_LOG2_E, _LN2_HIGH, _LN2_LOW = (
    np.float32(1.44269504088896341),
    np.float32(0.693359375),
    np.float32(-2.12194440e-4),
)
_SQRT_HALF = np.float32(0.707106781186547524)
_E0, _E1, _E2, _E3, _E4 = (
    np.float32(c)
    for c in (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1)
)
_L0, _L1, _L2, _L3, _L4, _L5, _L6, _L7, _L8 = (
    np.float32(c)
    for c in (
        7.0376836292e-2,
        -1.1514610310e-1,
        1.1676998740e-1,
        -1.2420140846e-1,
        1.4249322787e-1,
        -1.6668057665e-1,
        2.0000714765e-1,
        -2.4999993993e-1,
        3.3333331174e-1,
    )
)


@simd.device()
def _horner(p: Any, x: Any, c: Any) -> Any:
    return simd.add(simd.mul(p, x), simd.splat(c))


@simd.device()
def _exp(x: Any) -> Any:
    """The reference's exp."""
    n = simd.floor(simd.add(simd.mul(x, simd.splat(_LOG2_E)), simd.splat(_HALF)))
    r = simd.sub(simd.sub(x, simd.mul(n, simd.splat(_LN2_HIGH))), simd.mul(n, simd.splat(_LN2_LOW)))
    p = _horner(_horner(simd.splat(_E0), r, _E1), r, _E2)
    p = _horner(_horner(_horner(p, r, _E3), r, _E4), r, _HALF)
    p = simd.add(simd.add(simd.mul(p, simd.mul(r, r)), r), simd.splat(_ONE))
    return simd.mul(p, simd.power_of_two(n))


@simd.device()
def _log(x: Any) -> Any:
    """The reference's log."""
    m, e = simd.mantissa(x), simd.exponent(x)
    half = simd.splat(_SQRT_HALF)
    f = simd.sub(simd.where_less(m, half, simd.add(m, m), m), simd.splat(_ONE))
    e = simd.where_less(m, half, simd.sub(e, simd.splat(_ONE)), e)
    p = _horner(_horner(_horner(simd.splat(_L0), f, _L1), f, _L2), f, _L3)
    p = _horner(_horner(_horner(p, f, _L4), f, _L5), f, _L6)
    p = _horner(_horner(p, f, _L7), f, _L8)
    z = simd.mul(f, f)
    y = simd.add(simd.mul(simd.mul(p, f), z), simd.mul(e, simd.splat(_LN2_LOW)))
    y = simd.add(y, simd.mul(z, simd.splat(-_HALF)))
    return simd.add(simd.add(f, y), simd.mul(e, simd.splat(_LN2_HIGH)))


@simd.device()
def _noise(words: Any, index: int) -> Any:
    """Gumbel noise from 16 words: the reference's `gumbel`."""
    one, zero = simd.splat(_ONE), simd.splat(_ZERO)
    v = simd.add(simd.mul(unsigned(words, index), simd.splat(_STEP)), simd.splat(_HALF_STEP))
    v = simd.where_less(v, simd.splat(_MOST), v, simd.splat(_MOST))
    u = simd.sub(one, v)
    exact = simd.mul(simd.sub(zero, _log(u)), simd.div(v, simd.sub(one, u)))
    return simd.sub(zero, _log(simd.where_less(u, one, exact, v)))


@simd.device()
def _largest(logits: Any, start: int, count: int) -> Any:
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
def _first_equal(logits: Any, start: int, count: int, value: Any) -> int:
    for i in range(count):
        if logits[start + i] == value:
            return i
    return -1


@simd.device()
def _fill_depths(depths: Any, logits: Any, start: int, count: int, top: Any, temperature: Any) -> None:
    """Depths of a row, infinite from `count` to the end of the last block."""
    for i in range(0, depths.size, simd.LANES):
        n = max(0, min(simd.LANES, count - i))
        depth = simd.sub(simd.splat(top), simd.load_first(logits, start + i, n))
        depth = simd.div(depth, simd.splat(temperature))
        simd.store(depths, i, simd.keep_first(depth, n, simd.splat(_INF)))


@simd.device()
def _fill_masses(masses: Any, depths: Any, limit: Any, scratch: Any) -> int:
    """Masses of the tokens no deeper than `limit`, 0 for the others; returns their sum."""
    total = 0
    for i in range(0, depths.size, simd.LANES):
        depth = simd.load(depths, i)
        near = simd.where_less(depth, simd.splat(_DEEP), depth, simd.splat(_DEEP))
        mass = simd.mul(_exp(simd.sub(simd.splat(_ZERO), near)), simd.splat(_UNIT))
        mass = simd.where_less(simd.splat(limit), depth, simd.splat(_ZERO), mass)
        simd.store(scratch, 0, mass)
        for lane in range(simd.LANES):
            whole = np.int64(scratch[lane])
            masses[i + lane] = whole
            total += whole
    return total


@simd.device()
def _reach(keys: Any, masses: Any, count: int, target: float, buckets: Any) -> int:
    """The smallest key such that the tokens with keys up to it hold at least `target` mass.

    keys: int32, not negative. Three rounds over 11, 10 and 10 bits, each within the bucket that the last one chose.
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
def _limit(
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


@simd.device()
def _shallowest(depths: Any, start: int) -> Any:
    """The smallest depth of a block."""
    best = simd.splat(-_INF)
    for i in range(start, start + BLOCK, simd.LANES):
        best = simd.maximum(best, simd.sub(simd.splat(_ZERO), simd.load(depths, i)))
    return -simd.max_lanes(best)


@simd.device()
def _score(scores: Any, words: Any, depths: Any, start: int, limit: Any) -> Any:
    """scores[:64] = noise - depth of a block's tokens, -inf beyond the limit; returns the largest."""
    best = simd.splat(-_INF)
    for i in range(0, BLOCK, simd.LANES):
        depth = simd.load(depths, start + i)
        score = simd.sub(_noise(words, i), depth)
        score = simd.where_less(simd.splat(limit), depth, simd.splat(-_INF), score)
        simd.store(scores, i, score)
        best = simd.maximum(best, score)
    return simd.max_lanes(best)


@simd.device()
def _draw(depths: Any, limit: Any, seed: int, position: int, words: Any, scores: Any) -> int:
    """The token with the largest score. Blocks that even the largest noise cannot lift are skipped."""
    best, token = -_INF, -1
    for start in range(0, depths.size, BLOCK):
        shallowest = _shallowest(depths, start)
        if shallowest > limit or _LARGEST_NOISE - shallowest < best:
            continue
        philox(start // 4, position, seed, words)
        largest = _score(scores, words, depths, start, limit)
        if largest > best:
            best, token = largest, start + _first_equal(scores, 0, BLOCK, largest)
    return token


@kernel(_Args)
def _sample(pointer: Any) -> None:
    a = unpack(pointer)
    logits, temperature, out = floats(a.logits), floats(a.temperature), int32s(a.out)
    top_k, top_p, min_p = int32s(a.top_k), floats(a.top_p), floats(a.min_p)
    seeds, positions = int64s(a.seeds), int64s(a.positions)
    padded = (a.vocabulary + BLOCK - 1) // BLOCK * BLOCK
    depths, masses = np.empty(padded, np.float32), np.empty(padded, np.int64)
    words, scores, buckets = np.empty(BLOCK, np.int32), np.empty(BLOCK, np.float32), np.empty(2048, np.int64)
    row = claim(pointer)
    while row < a.rows:
        start, heat = row * a.stride, temperature[row]
        top = _largest(logits, start, a.vocabulary)
        if not np.isfinite(top):
            out[row] = -1
        elif heat == _ZERO:
            out[row] = _first_equal(logits, start, a.vocabulary, top)
        else:
            _fill_depths(depths, logits, start, a.vocabulary, top, heat)
            k, p, m = np.int64(top_k[row]), top_p[row], min_p[row]
            limit = _limit(depths, a.vocabulary, k, p, m, masses, buckets, scores)
            out[row] = _draw(depths, limit, seeds[row], positions[row], words, scores)
        row = claim(pointer)


def fits(logits: torch.Tensor, out: torch.Tensor) -> bool:
    """Whether this kernel handles these tensors: float32 on the CPU, logits of a row side by side."""
    return logits.is_cpu and logits.dtype is torch.float32 and logits.stride(-1) == 1 and out.is_contiguous()


def sample(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    seeds: torch.Tensor,
    positions: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """See `stretto.kernels.sample.sample`."""
    rows, vocabulary = logits.shape
    _sample(
        1 if rows == 1 else torch.get_num_threads(),
        logits.data_ptr(),
        temperature.data_ptr(),
        top_k.data_ptr(),
        top_p.data_ptr(),
        min_p.data_ptr(),
        seeds.data_ptr(),
        positions.data_ptr(),
        out.data_ptr(),
        rows,
        vocabulary,
        logits.stride(0),
    )
