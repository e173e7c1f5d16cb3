"""Sampling on the CPU: a row is a unit of work, and no vocabulary is ever sorted.

An unfiltered row is one pass of vector arithmetic, a filtered one a few more.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from stretto.kernels import simd
from stretto.kernels.pool import arguments, claim, floats, int32s, int64s, kernel, unpack
from stretto.kernels.rows import first_equal, largest
from stretto.kernels.sample.filters import BUCKETS, deepest
from stretto.kernels.sample.noise import LARGEST, noise
from stretto.kernels.sample.philox import BLOCK, philox
from stretto.kernels.sample.state import State

_Args = arguments(
    "logits slots positions temperature top_k top_p min_p seed last_token out rows vocabulary stride"
)
_ZERO, _INF = np.float32(0), np.float32(np.inf)


@simd.device()
def _fill_depths(depths: Any, logits: Any, start: int, count: int, top: Any, temperature: Any) -> None:
    """Depths of a row, infinite from `count` to the end of the last block."""
    for i in range(0, depths.size, simd.LANES):
        n = max(0, min(simd.LANES, count - i))
        depth = simd.sub(simd.splat(top), simd.load_first(logits, start + i, n))
        depth = simd.div(depth, simd.splat(temperature))
        simd.store(depths, i, simd.keep_first(depth, n, simd.splat(_INF)))


@simd.device()
def _shallowest(depths: Any, start: int) -> Any:
    """The smallest depth of a block."""
    best = simd.splat(-_INF)
    for i in range(start, start + BLOCK, simd.LANES):
        best = simd.maximum(best, simd.minus(simd.load(depths, i)))
    return -simd.max_lanes(best)


@simd.device()
def _score(scores: Any, words: Any, depths: Any, start: int, limit: Any) -> Any:
    """scores[:64] = noise - depth of a block's tokens, -inf beyond the limit; returns the largest."""
    best = simd.splat(-_INF)
    for i in range(0, BLOCK, simd.LANES):
        depth = simd.load(depths, start + i)
        score = simd.sub(noise(words, i), depth)
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
        if shallowest > limit or LARGEST - shallowest < best:
            continue
        philox(start // 4, position, seed, words)
        highest = _score(scores, words, depths, start, limit)
        if highest > best:
            best, token = highest, start + first_equal(scores, 0, BLOCK, highest)
    return token


@kernel(_Args)
def sample_kernel(pointer: Any) -> None:
    a = unpack(pointer)
    logits, slots, positions = floats(a.logits), int64s(a.slots), int64s(a.positions)
    temperature, top_k, top_p = floats(a.temperature), int32s(a.top_k), floats(a.top_p)
    min_p, seed, last_token, out = floats(a.min_p), int64s(a.seed), int32s(a.last_token), int32s(a.out)
    padded = (a.vocabulary + BLOCK - 1) // BLOCK * BLOCK
    depths, masses = np.empty(padded, np.float32), np.empty(padded, np.int64)
    words, scores, buckets = (
        np.empty(BLOCK, np.int32),
        np.empty(BLOCK, np.float32),
        np.empty(BUCKETS, np.int64),
    )
    row = claim(pointer)
    while row < a.rows:
        start, slot = row * a.stride, slots[row]
        heat, top = temperature[slot], largest(logits, start, a.vocabulary)
        if not np.isfinite(top):
            token = -1
        elif heat == _ZERO:
            token = first_equal(logits, start, a.vocabulary, top)
        else:
            _fill_depths(depths, logits, start, a.vocabulary, top, heat)
            k, p, m = np.int64(top_k[slot]), top_p[slot], min_p[slot]
            limit = deepest(depths, a.vocabulary, k, p, m, masses, buckets, scores)
            token = _draw(depths, limit, seed[slot], positions[row], words, scores)
        out[row], last_token[slot] = token, max(token, 0)
        row = claim(pointer)


def fits(logits: torch.Tensor, out: torch.Tensor) -> bool:
    """Whether this kernel handles these tensors: float32 on the CPU, logits of a row side by side."""
    return logits.is_cpu and logits.dtype is torch.float32 and logits.stride(-1) == 1 and out.is_contiguous()


def sample(
    logits: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor, state: State, out: torch.Tensor
) -> None:
    """See `stretto.kernels.sample.sample`."""
    rows, vocabulary = logits.shape
    sample_kernel(
        1 if rows == 1 else torch.get_num_threads(),
        logits.data_ptr(),
        slots.data_ptr(),
        positions.data_ptr(),
        *(column.data_ptr() for column in state),
        out.data_ptr(),
        rows,
        vocabulary,
        logits.stride(0),
    )
