"""The way of the CPU's attention through a sequence: tile by tile, each copied once for all the queries of a
unit of work; the few queries of a decode meet the cache itself, those of all its heads at once, so that none
waits for what another's softmax waits for.
"""

from __future__ import annotations

from typing import Any

from stretto.kernels import simd
from stretto.kernels.llvm import LANES
from stretto.kernels.paged_attention.ahead import look_ahead
from stretto.kernels.paged_attention.decode import mix, score
from stretto.kernels.paged_attention.state import hide, record, record_size, soften, turn_over
from stretto.kernels.paged_attention.tile import QUERIES, TILE, blend, dots
from stretto.kernels.pool import floats, int64s


@simd.device()
def _stage_keys(s: Any, cache: Any, base: int, head_dim: int, hidden: int, count: int) -> None:
    """keys[i, t] = element i of token t's key."""
    here = int64s(s.here)
    whole = head_dim - head_dim % LANES
    for panel in range(hidden // LANES * LANES, count, LANES):
        for column in range(0, whole, LANES):
            to = column * TILE + panel
            simd.load_columns(cache, s.here + 8 * panel, base + column, s.keys, to, TILE)
        if whole < head_dim:
            keys, scores = floats(s.keys), floats(s.scores)
            for lane in range(panel, panel + LANES):
                rest = simd.load_first(cache, here[lane] + base + whole, head_dim - whole)
                simd.store(s.scores, 0, rest)
                for column in range(whole, head_dim):
                    keys[column * TILE + lane] = scores[column - whole]


@simd.device()
def _stage_values(s: Any, cache: Any, base: int, head_dim: int, hidden: int, count: int) -> None:
    """values[t] = token t's value."""
    here = int64s(s.here)
    for token in range(hidden, count):
        for column in range(0, head_dim, LANES):
            part = simd.load_first(cache, here[token] + base + column, min(LANES, head_dim - column))
            simd.store(s.values, token * s.width + column, part)


@simd.device()
def _score(s: Any, u: Any, first: int, k_cache: Any, base: int, apart: int) -> None:
    """Scores of the queries from a record on, or of all of a decode's."""
    size = record_size(s)
    if not u.direct:
        at, ahead = record(s, first), base * apart
        dots(at, size, s.keys, TILE, u.head_dim, s.scores, TILE, s.decays, k_cache, s.asked, ahead)
        return
    for h in range(u.heads):
        row, start = h * u.group, base + h * u.head_dim
        at, scores = record(s, row), s.scores + 4 * TILE * row
        score(u.decode, at, size, k_cache, s.here, start, u.head_dim, scores, s.asked, start * apart)


@simd.device()
def _mix(s: Any, u: Any, first: int, hidden: int, tokens: int, v_cache: Any, base: int, apart: int) -> None:
    """Add the values of some tokens from `hidden` on to the sums of the same queries."""
    width, size = s.width, record_size(s)
    if not u.direct:
        sums, ahead = record(s, first) + 4 * width, base * apart
        weights, values = s.scores + 4 * hidden, s.values + 4 * hidden * width
        for column in range(0, width, TILE):
            out, start, asked = sums + 4 * column, values + 4 * column, s.asked + 8 * column
            blend(weights, TILE, start, width, tokens, out, size, s.decays, v_cache, asked, ahead)
        return
    for h in range(u.heads):
        row, start = h * u.group, base + h * u.head_dim
        sums, weights = record(s, row) + 4 * width, s.scores + 4 * (TILE * row + hidden)
        for column in range(0, width, len(u.decode[0]) * LANES):
            out, asked, ahead = sums + 4 * column, s.asked + 8 * column, start * apart
            here, decays = s.here + 8 * hidden, s.decays + 4 * row
            mix(u.decode, weights, v_cache, here, start + column, tokens, out, size, decays, asked, ahead)


@simd.device()
def _meet(
    s: Any, u: Any, tile: Any, h: int, query: int, window: int, k_cache: Any, v_cache: Any, apart: int
) -> None:
    """Up to QUERIES queries of a head, or all of all heads of a decode, meet the tile. tile: which of its
    tokens are there, from and to, and by how many positions row 0 is past its first; apart: what is asked
    for of two heads is so many times further apart than they are.
    """
    (hidden, count, ahead), base, first = tile, (u.head + h) * u.head_dim, h * u.pitch + query
    queries = u.heads * u.group if u.direct else min(QUERIES, u.queries - query)
    last = 0 if u.direct else (query + queries - 1) // u.group
    _score(s, u, first, k_cache, base, apart)
    least, most = ahead + query // u.group + 1, ahead + 1 + last
    if least < TILE or most > window or hidden > 0:
        for row in range(queries):
            seen = ahead + 1 + min(last, (query + row) // u.group)
            hide(s, row, max(hidden, seen - window), min(count, seen))
    for row in range(0, queries, QUERIES):
        soften(s, first + row, min(QUERIES, queries - row), row)
    _mix(s, u, first, hidden, min(count, most) - hidden, v_cache, base, apart)


@simd.device()
def walk(s: Any, a: Any, u: Any, k_cache: Any, v_cache: Any, begin: int, end: int) -> None:
    """A unit's queries meet the tiles with the tokens [begin, end)."""
    streamed = u.heads == a.kv_heads and a.page_size % LANES == 0
    apart = LANES if streamed else 1
    start = begin // TILE * TILE
    for first in range(start - TILE, end, TILE):
        s = turn_over(s)
        look_ahead(s, a, u, first + TILE, begin, streamed)
        if first < start:
            continue
        tile = hidden, count, ahead = max(0, begin - first), min(TILE, end - first), u.position - first
        last = min(u.queries, (TILE - 1 + a.window - ahead) * u.group)  # who sees any of it
        for h in range(1 if u.direct else u.heads):
            if not u.direct:
                base = (u.head + h) * u.head_dim
                _stage_keys(s, k_cache, base, u.head_dim, hidden, count)
                _stage_values(s, v_cache, base, u.head_dim, hidden, count)
            for query in range(max(0, -ahead) * u.group // QUERIES * QUERIES, last, QUERIES):
                _meet(s, u, tile, h, query, a.window, k_cache, v_cache, apart)
