"""What a thread of the CPU's attention works on, where it is in the cache, and what comes next.

A decode waits for memory: while one tile is worked on, the next is on its way to the caches, a line with
every few instructions, because lines asked for all at once wait for each other. After the last tile of a
decode that is the first of another, which takes 32 decodes of 160 tokens a tenth off their time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from stretto.kernels import simd
from stretto.kernels.llvm import LANES
from stretto.kernels.paged_attention.tile import PANELS, TILE
from stretto.kernels.pool import int32s, int64s


class Unit(NamedTuple):
    """Work that one thread does by itself; the last two are compile-time constants."""

    sequence: Any
    token: Any
    """Where its rows begin among all."""
    position: Any
    """Of the first of its rows in the sequence."""
    end: Any
    """The last token that it meets is before that."""
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
    direct: Any
    """Whether its queries meet the cache itself, those of all heads together; see `decode.py`."""
    group: Any
    head_dim: Any
    decode: Any
    """See `decode.shape`."""


@simd.device()
def _locate(a: Any, u: Any, sequence: int, places: int, first: int, hidden: int, count: int) -> None:
    """Find a tile's tokens [hidden, count) in the cache, page by page; others are said to be where the
    nearest of them is.
    """
    offsets, pages, table = int64s(places), int32s(a.block_tables), sequence * a.max_pages
    stride, token = a.kv_heads * u.head_dim, hidden
    while token < count:
        entry = (first + token) // a.page_size
        start = (np.int64(pages[table + entry]) * a.page_size + first - entry * a.page_size) * stride
        end = min(count, (entry + 1) * a.page_size - first)
        for lane in range(token, end):
            offsets[lane] = start + lane * stride
        token = end
    for lane in range(hidden):
        offsets[lane] = offsets[hidden]
    for lane in range(count, TILE):
        offsets[lane] = offsets[count - 1]


@simd.device()
def _ask(s: Any, u: Any, streamed: bool) -> None:
    """Write down what of the following tile is asked for when: where the heads are met one after the other,
    panels in the order of memory, a part with each head, else a head's tokens.
    """
    asked, following = int64s(s.asked), int64s(s.following)
    tokens, apart = (PANELS, LANES) if streamed else (TILE, 1)
    run = s.width // tokens
    for token in range(tokens):
        for i in range(run):
            asked[token * run + i] = following[token * apart] + i * TILE


@simd.device()
def look_ahead(s: Any, a: Any, u: Any, first: int, begin: int, streamed: bool) -> None:
    """Find the tile at `first`, which is met next, and say what of it is asked for when; past the unit's
    last, the first tile of the decode that this thread is likely to work on then. begin: the first token.
    """
    sequence, end = u.sequence, u.end
    if first >= end:
        sequence = np.int64(a.claimed)
        if not (u.direct and streamed and a.segments == 1 and sequence < a.sequences):
            return
        end = np.int64(int32s(a.kv_lengths)[sequence])
        begin = max(0, end - a.window)
        first = begin // TILE * TILE
    _locate(a, u, sequence, s.following, first, max(0, begin - first), max(1, min(TILE, end - first)))
    _ask(s, u, streamed)
