"""The way of the CPU's attention through a sequence: tile by tile, each prepared once for all the queries of
a unit of work.

A decode waits for memory: while one tile is worked on, the next is on its way to the caches, a line with
every few instructions, because lines asked for all at once wait for each other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from stretto.kernels import simd
from stretto.kernels.llvm import LANES
from stretto.kernels.paged_attention.state import hide, record, record_size, soften, turn_over
from stretto.kernels.paged_attention.tile import PANELS, QUERIES, TILE, blend, dots
from stretto.kernels.pool import floats, int32s, int64s


class Unit(NamedTuple):
    """Work that one thread does by itself; the last two are compile-time constants."""

    sequence: Any
    token: Any
    """Where its rows begin among all."""
    position: Any
    """Of the first of its rows in the sequence."""
    queries: Any
    """A KV head's."""
    pitch: Any
    """Records from one KV head's to the next's."""
    head: Any
    """The first of its KV heads."""
    heads: Any
    piece: Any
    pieces: Any
    """Segments of the sequence that are worked on by themselves; 1: it is not divided."""
    group: Any
    head_dim: Any


@simd.device()
def _locate(a: Any, u: Any, places: int, first: int, hidden: int, count: int) -> None:
    """Find a tile's tokens [hidden, count) in the cache; other lanes of their panels repeat one of them."""
    offsets, pages, table = int64s(places), int32s(a.block_tables), u.sequence * a.max_pages
    stride = a.kv_heads * u.head_dim
    for panel in range(hidden // LANES * LANES, count, LANES):
        entry = (first + panel) // a.page_size
        place = first + panel - entry * a.page_size
        if place + LANES <= a.page_size:  # no lane costs a division
            start = np.int64(pages[table + entry]) * a.page_size + place
            for lane in range(LANES):
                offsets[panel + lane] = (start + min(max(panel + lane, hidden), count - 1) - panel) * stride
            continue
        for lane in range(panel, panel + LANES):
            position = first + min(max(lane, hidden), count - 1)
            page = np.int64(pages[table + position // a.page_size])
            offsets[lane] = (page * a.page_size + position % a.page_size) * stride


@simd.device()
def _ask(s: Any, u: Any, streamed: bool) -> None:
    """Write down what of the following tile is asked for when: where the heads are met one after the other,
    panels in the order of memory, a part with each head, else a head's tokens.
    """
    asked, following, half = int64s(s.asked), int64s(s.following), u.head_dim // PANELS
    for step in range(s.width):
        if streamed:
            panel = min(step // half, PANELS - 1)
            asked[step] = following[panel * LANES] + (step - panel * half) * TILE
        else:
            asked[step] = following[step % TILE] + step // TILE * TILE


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
def _meet(
    s: Any, u: Any, tile: Any, place: int, query: int, window: int, k_cache: Any, v_cache: Any, asked: int
) -> None:
    """Up to QUERIES queries of a head meet the tile. tile: which of its tokens are there, from and to, and by
    how many positions row 0 is past its first; place: the record of the head's first query; asked: where in
    the cache what is asked for begins.
    """
    hidden, count, ahead = tile
    queries, width, first = min(QUERIES, u.queries - query), s.width, place + query
    at, size = record(s, first), record_size(s)
    dots(queries, at, size, s.keys, TILE, u.head_dim, s.scores, TILE, s.decays, k_cache, s.asked, asked)
    least, most = ahead + query // u.group + 1, ahead + (query + queries - 1) // u.group + 1
    if least < TILE or most > window or hidden > 0:
        for row in range(queries):
            seen = ahead + (query + row) // u.group + 1
            hide(s, row, max(hidden, seen - window), min(count, seen))
    soften(s, first, queries)
    weights, values, tokens = s.scores + 4 * hidden, s.values + 4 * hidden * width, min(count, most) - hidden
    for column in range(0, width, TILE):
        out, start, steps = at + 4 * (width + column), values + 4 * column, s.asked + 8 * column
        blend(queries, weights, TILE, start, width, tokens, out, size, s.decays, v_cache, steps, asked)


@simd.device()
def walk(s: Any, a: Any, u: Any, k_cache: Any, v_cache: Any, begin: int, end: int) -> None:
    """A unit's queries meet the tiles with the tokens [begin, end)."""
    streamed = u.heads == a.kv_heads and a.page_size % LANES == 0
    start = begin // TILE * TILE
    for first in range(start - TILE, end, TILE):
        s, left = turn_over(s), end - first - TILE
        if left > 0:
            _locate(a, u, s.following, first + TILE, max(0, begin - first - TILE), min(TILE, left))
            _ask(s, u, streamed)
        if first < start:
            continue
        hidden, count, ahead = max(0, begin - first), min(TILE, end - first), u.position - first
        last = min(u.queries, (TILE - 1 + a.window - ahead) * u.group)  # who sees any of it
        for h in range(u.heads):
            base = (u.head + h) * u.head_dim
            asked = base * LANES if streamed else base
            _stage_keys(s, k_cache, base, u.head_dim, hidden, count)
            _stage_values(s, v_cache, base, u.head_dim, hidden, count)
            for query in range(max(0, -ahead) * u.group // QUERIES * QUERIES, last, QUERIES):
                tile = (hidden, count, ahead)
                _meet(s, u, tile, h * u.pitch, query, a.window, k_cache, v_cache, asked)
