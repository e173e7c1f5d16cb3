"""What a thread of the CPU's attention has of the queries it works on: online softmax, segment by segment."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from stretto.kernels import simd
from stretto.kernels.paged_attention.tile import QUERIES

TILE = simd.LANES
"""Tokens of a tile: one per lane."""


class Scratch(NamedTuple):
    """A thread's buffers, flat float32. A query is one head of a row; `width` is head_dim, padded."""

    queries: Any
    """[queries, width], scaled."""
    acc: Any
    """[queries, width]: weighted sums of values so far."""
    sums: Any
    """[queries, 16]: sums of weights so far, by lane."""
    maxima: Any
    """[queries]: largest scores so far."""
    past_acc: Any
    """The same three of the segments before."""
    past_sums: Any
    past_maxima: Any
    keys: Any
    """[width, 16]: a tile's keys, turned."""
    offsets: Any
    """int64 [16]: where in the cache a tile's tokens are."""
    following: Any
    """Those of the tile after it."""
    scores: Any
    """[QUERIES, 16]: scores, then weights."""
    decays: Any
    """[QUERIES, 16]: what the sums so far are still worth."""


@simd.device()
def make_scratch(queries: int, width: int) -> Any:
    return Scratch(
        np.empty(queries * width, np.float32),
        np.empty(queries * width, np.float32),
        np.empty(queries * TILE, np.float32),
        np.empty(queries, np.float32),
        np.empty(queries * width, np.float32),
        np.empty(queries * TILE, np.float32),
        np.empty(queries, np.float32),
        np.empty(width * TILE, np.float32),
        np.empty(TILE, np.int64),
        np.empty(TILE, np.int64),
        np.empty(QUERIES * TILE, np.float32),
        np.empty(QUERIES * TILE, np.float32),
    )


@simd.device()
def take_query(s: Any, query: int, q: Any, at: int, head_dim: int, scale: Any) -> None:
    """Start a query: copy it, scaled, and clear its sums."""
    width = -(-head_dim // TILE) * TILE
    for i in range(0, head_dim, TILE):
        part = simd.load_first(q, at + i, min(TILE, head_dim - i))
        simd.store(s.queries, query * width + i, simd.mul(part, simd.splat(scale)))
    _clear(s, query, width)
    s.past_maxima[query] = -np.inf


@simd.device()
def _clear(s: Any, query: int, width: int) -> None:
    """A segment starts from nothing."""
    for i in range(0, width, TILE):
        simd.store(s.acc, query * width + i, simd.splat(np.float32(0.0)))
    simd.store(s.sums, query * TILE, simd.splat(np.float32(0.0)))
    s.maxima[query] = -np.inf


@simd.device()
def put_by(s: Any, query: int, width: int) -> None:
    """A segment ends, and another comes."""
    for i in range(0, width, TILE):
        simd.store(s.past_acc, query * width + i, simd.load(s.acc, query * width + i))
    simd.store(s.past_sums, query * TILE, simd.load(s.sums, query * TILE))
    s.past_maxima[query] = s.maxima[query]
    _clear(s, query, width)


@simd.device()
def join(s: Any, query: int, width: int) -> None:
    """Add what was put by to what came since; either may be nothing, and then changes no bit."""
    past, mine = s.past_maxima[query], s.maxima[query]
    if past == -np.inf:
        return
    highest = past if mine == -np.inf else max(past, mine)
    old, new = simd.exp(simd.splat(past - highest)), simd.exp(simd.splat(mine - highest))
    for i in range(0, width, TILE):
        at = query * width + i
        before, after = simd.load(s.past_acc, at), simd.load(s.acc, at)
        joined = before if mine == -np.inf else simd.fma(before, old, simd.mul(after, new))
        simd.store(s.acc, at, joined)
    before, after = simd.load(s.past_sums, query * TILE), simd.load(s.sums, query * TILE)
    joined = before if mine == -np.inf else simd.fma(before, old, simd.mul(after, new))
    simd.store(s.sums, query * TILE, joined)
    s.maxima[query] = highest


@simd.device()
def save(s: Any, query: int, width: int, parts: Any, to: int) -> None:
    """Write what a query has of a segment."""
    for i in range(0, width, TILE):
        simd.store(parts, to + i, simd.load(s.acc, query * width + i))
    simd.store(parts, to + width, simd.load(s.sums, query * TILE))
    parts[to + width + TILE] = s.maxima[query]


@simd.device()
def restore(s: Any, query: int, width: int, parts: Any, to: int) -> None:
    """Read it again."""
    for i in range(0, width, TILE):
        simd.store(s.acc, query * width + i, simd.load(parts, to + i))
    simd.store(s.sums, query * TILE, simd.load(parts, to + width))
    s.maxima[query] = parts[to + width + TILE]


@simd.device()
def soften(s: Any, place: int, query: int, hidden: int, seen: int) -> None:
    """Turn a query's scores into weights under its new largest score: exactly 0 but for those of the tokens
    [hidden, seen), of which there is one at least.
    """
    at, none = place * TILE, simd.splat(np.float32(-np.inf))
    scores = simd.keep_first(none, hidden, simd.keep_first(simd.load(s.scores, at), seen, none))
    before = s.maxima[query]
    highest = max(before, simd.max_lanes(scores))
    decay = simd.splat(np.float32(1.0))
    if highest != before:
        decay = simd.exp(simd.splat(before - highest))
    weights = simd.exp(simd.sub(scores, simd.splat(highest)))
    zero = simd.splat(np.float32(0.0))
    weights = simd.keep_first(zero, hidden, simd.keep_first(weights, seen, zero))
    simd.store(s.scores, at, weights)
    simd.store(s.decays, at, decay)
    simd.store(s.sums, query * TILE, simd.fma(simd.load(s.sums, query * TILE), decay, weights))
    s.maxima[query] = highest


@simd.device()
def finish(s: Any, query: int, out: Any, to: int, head_dim: int, unit: Any) -> None:
    """Write a query's result; unit: what a value of 1 in the cache stands for."""
    width = -(-head_dim // TILE) * TILE
    share = simd.splat(unit / simd.sum_lanes(simd.load(s.sums, query * TILE)))
    for i in range(0, head_dim, TILE):
        part = simd.mul(simd.load(s.acc, query * width + i), share)
        simd.store_first(out, to + i, part, min(TILE, head_dim - i))
