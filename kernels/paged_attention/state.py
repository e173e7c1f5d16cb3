"""What a thread of the CPU's attention has of the queries it works on: online softmax, segment by segment.

A query, which is one head of a row, has a record of float32 at an address:

    scaled query [width] | sums of values [width] and, by lane, of weights [16] | the same sums, put by

`width` is the head size, padded. Largest scores are kept apart, a vector for as many queries as meet a tile
together. Scores count in powers of two.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from stretto.kernels import simd
from stretto.kernels.llvm import LANES
from stretto.kernels.paged_attention.tile import QUERIES, ROWS, TILE, row_maxima
from stretto.kernels.pool import floats

LOWEST = np.float32(np.finfo(np.float32).min)
"""The largest score where there is none yet: finite, so that no difference of two is NaN."""


class Scratch(NamedTuple):
    """A thread's memory: addresses of float32 but for the last two."""

    keys: Any
    """[width, 32]: a tile's keys, turned."""
    values: Any
    """[32, width]: its values."""
    scores: Any
    """[queries, 32], of those that meet a tile together: scores, then weights."""
    decays: Any
    """[queries + 16]: what the sums so far are still worth."""
    tops: Any
    """The same shape: the largest scores under which the weights are."""
    here: Any
    """int64 [32]: where in the cache a tile's tokens are."""
    following: Any
    """Those of the tile after it."""
    asked: Any
    """int64 [width]: what the caches are asked for, step by step; see `tile.make_product`."""
    maxima: Any
    """[queries / QUERIES, 16]: largest scores so far."""
    past_maxima: Any
    """The same of the segments before."""
    records: Any
    width: Any


def padded(size: int, to: int) -> int:
    return -(-size // to) * to


def found_size(width: int) -> int:
    """Numbers that a query has of a segment: sums, and a vector for its largest score."""
    return width + 2 * LANES


def scratch_bytes(queries: int, width: int) -> int:
    """Bytes of a thread's memory; queries: a multiple of QUERIES."""
    numbers = queries * (3 * width + 2 * LANES) + 2 * (queries // QUERIES) * LANES
    met = max(queries, ROWS) * (TILE + 2) + 2 * LANES
    return 4 * (numbers + 2 * TILE * width + met) + 8 * (2 * TILE + width)


@simd.device()
def lay_out(at: int, queries: int, width: int) -> Any:
    values = at + 4 * TILE * width
    scores = values + 4 * TILE * width
    decays = scores + 4 * TILE * max(queries, ROWS)
    tops = decays + 4 * (max(queries, ROWS) + LANES)
    here = tops + 4 * (max(queries, ROWS) + LANES)
    following, asked = here + 8 * TILE, here + 16 * TILE
    maxima = asked + 8 * width
    past = maxima + 4 * LANES * (queries // QUERIES)
    records = past + 4 * LANES * (queries // QUERIES)
    return Scratch(at, values, scores, decays, tops, here, following, asked, maxima, past, records, width)


@simd.device()
def turn_over(s: Any) -> Any:
    """What followed is here."""
    first, rest = (
        (s.keys, s.values, s.scores, s.decays, s.tops),
        (s.asked, s.maxima, s.past_maxima, s.records, s.width),
    )
    return Scratch(*first, s.following, s.here, *rest)


@simd.device()
def record_size(s: Any) -> int:
    """Numbers that a record has."""
    return 3 * s.width + 2 * LANES


@simd.device()
def record(s: Any, query: int) -> int:
    """The address of a query's record."""
    return s.records + 4 * query * record_size(s)


@simd.device()
def _top(query: int) -> int:
    """Where among maxima a query's is."""
    return query // QUERIES * LANES + query % QUERIES


@simd.device()
def take_query(s: Any, query: int, q: Any, start: int, head_dim: int, factor: Any) -> None:
    """Start a query: copy it, scaled."""
    at = record(s, query)
    for i in range(0, head_dim, LANES):
        part = simd.load_first(q, start + i, min(LANES, head_dim - i))
        simd.store(at, i, simd.mul(part, simd.splat(factor)))
    _clear(s, query)


@simd.device()
def _clear(s: Any, query: int) -> None:
    """A segment starts from nothing."""
    at, width = record(s, query), s.width
    for i in range(width, 2 * width + LANES, LANES):
        simd.store(at, i, simd.splat(np.float32(0.0)))
    floats(s.maxima)[_top(query)] = LOWEST


@simd.device()
def put_by(s: Any, query: int) -> None:
    """A segment ends, and another comes."""
    at, width, top = record(s, query), s.width, _top(query)
    for i in range(width, 2 * width + LANES, LANES):
        simd.store(at, width + LANES + i, simd.load(at, i))
    floats(s.past_maxima)[top] = floats(s.maxima)[top]
    _clear(s, query)


@simd.device()
def join(s: Any, query: int) -> None:
    """Add what was put by to what came since; either may be nothing, and then changes no bit."""
    at, width, top = record(s, query), s.width, _top(query)
    before, since = simd.spread(s.past_maxima, top), simd.spread(s.maxima, top)
    highest = simd.larger(before, since)
    old, new = simd.exp2_below(simd.sub(before, highest)), simd.exp2_below(simd.sub(since, highest))
    for i in range(width, 2 * width + LANES, LANES):
        past = simd.load(at, width + LANES + i)
        simd.store(at, i, simd.fma(past, old, simd.mul(simd.load(at, i), new)))
    maxima = floats(s.maxima)
    maxima[top] = max(maxima[top], floats(s.past_maxima)[top])


@simd.device()
def save(s: Any, query: int, part: int) -> None:
    """Write what a query has of a segment; part: an address."""
    at, width = record(s, query), s.width
    for i in range(0, width + LANES, LANES):
        simd.store(part, i, simd.load(at, width + i))
    simd.store(part, width + LANES, simd.spread(s.maxima, _top(query)))


@simd.device()
def restore(s: Any, query: int, part: int) -> None:
    """Read it again."""
    at, width = record(s, query), s.width
    for i in range(0, width + LANES, LANES):
        simd.store(at, width + i, simd.load(part, i))
    floats(s.maxima)[_top(query)] = floats(part)[width + LANES]


@simd.device()
def hide(s: Any, row: int, begin: int, end: int) -> None:
    """A row of scores keeps those of the tokens [begin, end)."""
    for i in range(0, TILE, LANES):
        at, none = row * TILE + i, simd.splat(np.float32(-np.inf))
        simd.store(s.scores, at, simd.keep_between(simd.load(s.scores, at), begin - i, end - i, none))


@simd.device()
def soften(s: Any, query: int, queries: int, first: int) -> None:
    """Turn up to QUERIES queries' scores into weights under the largest so far: exactly 0 where hidden; what
    sees none keeps its sums' bits. query: the first, a multiple of QUERIES; first: its row of scores.
    """
    top = query // QUERIES * LANES
    before = simd.load(s.maxima, top)
    highest = simd.larger(before, row_maxima(s.scores + 4 * TILE * first))
    simd.store(s.decays, first, simd.exp2_below(simd.sub(before, highest)))
    simd.store(s.maxima, top, highest)
    simd.store(s.tops, first, highest)
    for row in range(queries):
        largest, at = simd.spread(s.tops, first + row), record(s, query + row) + 8 * s.width
        total = simd.mul(simd.load(at, 0), simd.spread(s.decays, first + row))
        start = (first + row) * TILE
        for i in range(start, start + TILE, LANES):
            weights = simd.exp2_below(simd.sub(simd.load(s.scores, i), largest))
            simd.store(s.scores, i, weights)
            total = simd.add(total, weights)
        simd.store(at, 0, total)


@simd.device()
def finish(s: Any, query: int, out: Any, to: int, head_dim: int, unit: Any) -> None:
    """Write a query's result; unit: what a value of 1 in the cache stands for."""
    at, width = record(s, query), s.width
    share = simd.splat(unit / simd.sum_lanes(simd.load(at, 2 * width)))
    for i in range(0, head_dim, LANES):
        part = simd.mul(simd.load(at, width + i), share)
        simd.store_first(out, to + i, part, min(LANES, head_dim - i))
