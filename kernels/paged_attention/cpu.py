"""Paged attention on the CPU: online softmax (Milakov and Gimelshein, 2018, arXiv:1805.02867) in tiles.

A row's keys and values are walked in tiles of 16 tokens at fixed absolute positions, gathered over pages of
whatever size. Every row goes through the same instructions in the same order, be it a decode or one of many
rows of a prompt chunk, so its bits depend on its query and its keys and values alone. Rows of one sequence
are worked on together only to share loads, and the work of turning a tile of keys on its side.

Every `SEGMENT` tokens, at fixed absolute positions too, a row starts again from nothing, and joins what it
had with what it gets. So the segments of a few decodes can be shared out among the threads and joined
afterwards, in the same order and with the same bits.

A decode waits for memory: while one tile is worked on, the next is on its way to the caches, a line with
every few instructions, because lines asked for all at once wait for each other.

Measured on one core (Zen 5), queries one by one -> eight at a time: 256 rows on 2,048 tokens 42 -> 95
GFLOP/s. 32 decodes on 160 tokens, two cores: 420 us with nothing asked for, 390 all at once, 290 so, the
heads of a decode in one go; reading alone takes 190. One core: 520 us, over a float16 cache 330, over fp8
350. One decode on 4,096 tokens: 350 us whole, 177 in segments.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch

from stretto.kernels import kv_cache, simd
from stretto.kernels.buffers import Buffers
from stretto.kernels.paged_attention.state import (
    TILE,
    finish,
    join,
    make_scratch,
    put_by,
    restore,
    save,
    soften,
    take_query,
)
from stretto.kernels.paged_attention.tile import FEW, QUERIES, WIDE, blend, blend_wide, dots
from stretto.kernels.pool import (
    Kernel,
    arguments,
    claim,
    floats,
    int32s,
    kernel,
    meet,
    share,
    stored,
    thread_count,
    thread_index,
    unpack,
)

ROWS = 8
"""Query rows of one sequence that are worked on together: with all heads of their group, a unit of work."""

SEGMENT = 512
"""Tokens of a segment: whole tiles."""

ENOUGH = 2
"""Decodes, or segments of them, a thread from which on each is a unit of work, whose heads read the cache in
one go; with fewer, each head is one."""

LINE = 64
"""Bytes that the caches fetch at once."""

EVERYTHING = 1 << 40
"""The window of layers that have none."""

_Args = arguments(
    "out q k_cache v_cache block_tables query_starts kv_lengths sequences kv_heads page_size max_pages"
    " out_stride q_stride window k_scale v_scale enough parts segments heads",
    "scale",
)


_buffers = Buffers()


@simd.device()
def _locate(
    offsets: Any, pages: Any, table: int, first: int, hidden: int, count: int, page_size: int, stride: int
) -> None:
    """Find a tile's tokens [hidden, count) in the cache; lanes before and past them repeat one of them."""
    entry = first // page_size
    place = first - entry * page_size
    if place + TILE <= page_size:  # no lane costs a division
        start = np.int64(pages[table + entry]) * page_size + place
        for lane in range(TILE):
            offsets[lane] = (start + min(max(lane, hidden), count - 1)) * stride
        return
    for lane in range(TILE):
        position = first + min(max(lane, hidden), count - 1)
        page = np.int64(pages[table + position // page_size])
        offsets[lane] = (page * page_size + position % page_size) * stride


@simd.device()
def _ask(offsets: Any, keys: Any, values: Any, base: int, head_dim: int) -> None:
    """Have the caches fetch the keys and values at those places."""
    for lane in range(TILE):
        for column in range(0, head_dim, LINE // keys.itemsize):
            simd.prefetch(keys, offsets[lane] + base + column)
            simd.prefetch(values, offsets[lane] + base + column)


@simd.device()
def _turn(s: Any, cache: Any, base: int, head_dim: int) -> None:
    """keys[i, t] = element i of token t's key."""
    whole = head_dim - head_dim % TILE
    for column in range(0, whole, TILE):
        simd.load_columns(cache, s.offsets, base + column, s.keys, column * TILE)
    if whole < head_dim:
        for lane in range(TILE):
            simd.store(s.scores, 0, simd.load_first(cache, s.offsets[lane] + base + whole, head_dim - whole))
            for column in range(whole, head_dim):
                s.keys[column * TILE + lane] = s.scores[column - whole]


@simd.device()
def _meet(
    s: Any,
    place: int,
    query: int,
    count: int,
    ahead: int,
    window: int,
    group: int,
    tokens: int,
    cache: Any,
    base: int,
    head_dim: int,
    next_keys: int,
    next_values: int,
) -> None:
    """Up to QUERIES queries of a head meet the tile. place: where the head's queries begin; ahead: by how
    many positions row 0 is past the tile's first; next_keys, next_values: addresses of what is met next.
    """
    width = -(-head_dim // TILE) * TILE
    pace = TILE * cache.itemsize
    at = (place + query) * width
    dots(count, s.queries, at, width, s.keys.ctypes.data, head_dim, s.scores, next_keys, pace)
    for i in range(count):
        seen = ahead + (query + i) // group + 1
        soften(s, i, place + query + i, max(0, seen - window), min(TILE, seen))
    wide = head_dim - head_dim % WIDE if count <= FEW else 0
    for column in range(0, wide, WIDE):
        at, to, next_line = (place + query) * width + column, base + column, next_values + column * pace
        blend_wide(count, s.acc, at, width, s.decays, s.scores, tokens, cache, s.offsets, to, WIDE, next_line)
    for column in range(wide, head_dim, TILE):
        at, to, next_line = (place + query) * width + column, base + column, next_values + column * pace
        columns = min(TILE, head_dim - column)
        blend(count, s.acc, at, width, s.decays, s.scores, tokens, cache, s.offsets, to, columns, next_line)


@simd.device()
def _walk(s: Any, a: Any, k_cache: Any, v_cache: Any, where: Any, begin: int, end: int) -> None:
    """The queries of some heads meet the tiles with the tokens [begin, end); `where` says which they are."""
    sequence, position, queries, group, head, heads, head_dim = where
    pages, table = int32s(a.block_tables), sequence * a.max_pages
    stride, size = a.kv_heads * head_dim, TILE * head_dim
    base, item = head * head_dim, k_cache.itemsize
    streamed = heads == a.kv_heads and a.page_size % TILE == 0
    start = begin // TILE * TILE
    _locate(s.following, pages, table, start, begin - start, min(TILE, end - start), a.page_size, stride)
    for first in range(start, end, TILE):
        tokens, left, ahead = min(TILE, end - first), min(TILE, end - first - TILE), position - first
        for lane in range(TILE):
            s.offsets[lane] = s.following[lane]  # a slice takes two seconds to compile
        if left > 0:
            _locate(s.following, pages, table, first + TILE, 0, left, a.page_size, stride)
        last = min(queries, (TILE - 1 + a.window - ahead) * group)  # who sees any of it
        for h in range(heads):
            at, next_keys, next_values = base + h * head_dim, s.keys.ctypes.data, s.keys.ctypes.data
            if left > 0 and streamed:
                place = (s.following[0] + h * size) * item
                next_keys, next_values = a.k_cache + place, a.v_cache + place
            elif left > 0:
                _ask(s.following, k_cache, v_cache, at, head_dim)
            _turn(s, k_cache, at, head_dim)
            for query in range(max(0, -ahead) * group, last, QUERIES):
                count = min(QUERIES, last - query)
                where = (v_cache, at, head_dim, next_keys, next_values)
                _meet(s, h * queries, query, count, ahead, a.window, group, tokens, *where)
                next_keys = next_values = s.keys.ctypes.data


@simd.device()
def _pieces(a: Any, sequence: int) -> int:
    """Segments of a sequence that are worked on by themselves; 1: it is not divided."""
    starts, length = int32s(a.query_starts), np.int64(int32s(a.kv_lengths)[sequence])
    if a.segments == 1 or starts[sequence + 1] - starts[sequence] != 1:
        return 1
    return (length + SEGMENT - 1) // SEGMENT - max(0, length - a.window) // SEGMENT


@simd.device()
def _join_pieces(s: Any, a: Any, sequence: int, head: int, pieces: int, width: int) -> None:
    """Query 0 becomes that of a head of a divided sequence, with what each piece found."""
    parts, part = floats(a.parts), width + 2 * TILE
    s.past_maxima[0] = -np.inf
    for piece in range(pieces):
        if piece:
            put_by(s, 0, width)
        restore(s, 0, width, parts, ((sequence * a.heads + head) * a.segments + piece) * part)
        join(s, 0, width)


@functools.cache
def attention(head_dim: int, group: int, size: int = 4) -> Kernel:
    """The kernel for one head size and number of query heads per KV head, both compile-time constants.

    size: bytes of a number in the cache, which is float32, float16, or fp8 with scales.
    """
    fp8 = size == 1
    width = -(-head_dim // TILE) * TILE

    def body(pointer: Any) -> None:
        a = unpack(pointer)
        out, q, parts = floats(a.out), floats(a.q), floats(a.parts)
        k_cache, v_cache = stored(a.k_cache, size), stored(a.v_cache, size)
        starts, lengths = int32s(a.query_starts), int32s(a.kv_lengths)
        scale, part = np.float32(a.scale), width + 2 * TILE
        s = make_scratch(max(ROWS, a.kv_heads) * group, width)
        unit, sequence, passed = claim(pointer), 0, 0
        while sequence < a.sequences:
            rows, pieces = np.int64(starts[sequence + 1]) - np.int64(starts[sequence]), _pieces(a, sequence)
            heads = a.kv_heads if rows == 1 and a.sequences * pieces >= a.enough else 1
            turns = a.kv_heads // heads
            units = (rows + ROWS - 1) // ROWS * turns * pieces
            if unit >= passed + units:
                sequence, passed = sequence + 1, passed + units
                continue
            piece, place = (unit - passed) % pieces, (unit - passed) // pieces
            head = place % turns * heads
            first_row = ((rows - 1) // ROWS - place // turns) * ROWS  # the longest rows first
            position = np.int64(lengths[sequence]) - rows + first_row
            queries, token = min(ROWS, rows - first_row) * group, starts[sequence] + first_row
            for h in range(heads):
                factor = scale * floats(a.k_scale)[head + h] if fp8 else scale
                for query in range(queries):
                    column = ((head + h) * group + query % group) * head_dim
                    at = (token + query // group) * a.q_stride + column
                    take_query(s, h * queries + query, q, at, head_dim, factor)
            begin, end = max(0, position - a.window + 1), position + queries // group
            first = (begin // SEGMENT + piece) * SEGMENT
            for segment in range(first, first + SEGMENT if pieces > 1 else end, SEGMENT):
                if segment > first:
                    for query in range(heads * queries):
                        put_by(s, query, width)
                where = (sequence, position, queries, group, head, heads, head_dim)
                last = min(end, segment + SEGMENT)
                _walk(s, a, k_cache, v_cache, where, max(begin, segment), last)
                for query in range(heads * queries):
                    join(s, query, width)
            for h in range(heads):
                value_unit = floats(a.v_scale)[head + h] if fp8 else np.float32(1.0)
                for query in range(queries):
                    q_head = (head + h) * group + query % group
                    if pieces > 1:
                        to = ((sequence * a.heads + q_head) * a.segments + piece) * part
                        save(s, h * queries + query, width, parts, to)
                    else:
                        to = (token + query // group) * a.out_stride + q_head * head_dim
                        finish(s, h * queries + query, out, to, head_dim, value_unit)
            unit = claim(pointer)
        if a.segments == 1:
            return
        meet(pointer, thread_count())
        shared = share(a.sequences * a.heads, np.int64(thread_index()), np.int64(thread_count()))
        for i in range(shared[0], shared[1]):
            sequence, q_head = i // a.heads, i % a.heads
            pieces = _pieces(a, sequence)
            if pieces > 1:
                _join_pieces(s, a, sequence, q_head, pieces, width)
                value_unit = floats(a.v_scale)[q_head // group] if fp8 else np.float32(1.0)
                to = np.int64(starts[sequence]) * a.out_stride + q_head * head_dim
                finish(s, 0, out, to, head_dim, value_unit)

    return kernel(_Args)(body)


def fits(
    out: torch.Tensor,
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
) -> bool:
    """Whether this kernel handles these tensors; see `kv_cache.py`."""
    return kv_cache.fits((out, q), k_cache, v_cache, k_scale, v_scale)


def paged_attention(
    out: torch.Tensor,
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_tables: torch.Tensor,
    query_starts: torch.Tensor,
    kv_lengths: torch.Tensor,
    scale: float,
    *,
    window: int = 0,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
) -> None:
    """See `stretto.kernels.paged_attention.paged_attention`."""
    _, q_heads, head_dim = q.shape
    _, page_size, kv_heads, _ = k_cache.shape
    sequences, threads = len(kv_lengths), torch.get_num_threads()
    few = len(q) == sequences < ENOUGH * threads
    segments = -(-block_tables.shape[1] * page_size // SEGMENT) if few else 1
    part = -(-head_dim // TILE) * TILE + 2 * TILE
    parts = _buffers.least(4 * sequences * q_heads * segments * part if segments > 1 else 1)
    attention(head_dim, q_heads // kv_heads, k_cache.itemsize)(
        threads,
        out.data_ptr(),
        q.data_ptr(),
        k_cache.data_ptr(),
        v_cache.data_ptr(),
        block_tables.data_ptr(),
        query_starts.data_ptr(),
        kv_lengths.data_ptr(),
        sequences,
        kv_heads,
        page_size,
        block_tables.stride(0),
        out.stride(0),
        q.stride(0),
        window or EVERYTHING,
        0 if k_scale is None else k_scale.data_ptr(),
        0 if v_scale is None else v_scale.data_ptr(),
        ENOUGH * threads,
        parts.data_ptr(),
        segments,
        q_heads,
        scale,
    )
