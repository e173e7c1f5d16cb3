"""Paged attention on the CPU: online softmax (Milakov and Gimelshein, 2018, arXiv:1805.02867) in tiles.

A row's keys and values are walked in tiles of 32 tokens at fixed absolute positions, gathered over pages of
whatever size. Every row goes through the same instructions in the same order, be it a decode or one of many
rows of a prompt chunk, so its bits depend on its query and its keys and values alone. Rows of one sequence
are worked on together only to share loads, and the work of preparing a tile.

Every `SEGMENT` tokens, at fixed absolute positions too, a row starts again from nothing, and joins what it
had with what it gets. So the segments of a few decodes can be shared out among the threads and joined
afterwards, in the same order and with the same bits.

Measured on one core (Zen 5), over float16 caches, beside tiles of 16 tokens and queries softened one by one:
4 x 128 rows 920 -> 460 us, 1,024 rows 12.3 -> 6.1 ms (200 GFLOP/s; the products alone would take 4.9), 256
rows on 2,048 tokens 11.3 -> 5.4 ms. Two cores, 32 decodes on 160 tokens in each of 30 layers: 3.0 ms,
40 GB/s, which is what memory gives; 5.7 by way of copied tiles.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch

from stretto.kernels import kv_cache, simd
from stretto.kernels.buffers import Buffers
from stretto.kernels.llvm import LANES
from stretto.kernels.paged_attention import decode
from stretto.kernels.paged_attention.ahead import Unit
from stretto.kernels.paged_attention.state import (
    finish,
    found_size,
    join,
    lay_out,
    padded,
    put_by,
    restore,
    save,
    scratch_bytes,
    take_query,
)
from stretto.kernels.paged_attention.tile import LINE, QUERIES, TILE
from stretto.kernels.paged_attention.walk import walk
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

FEWEST, MOST = 8, 32
"""Query rows of one sequence that are worked on together: with all heads of their group, a unit of work."""

UNITS = 8
"""Units a thread has at least where rows are enough; more rows a unit share more of a tile's preparation."""

SEGMENT = 512
"""Tokens of a segment: whole tiles."""

ENOUGH = 2
"""Decodes, or segments of them, a thread from which on each is a unit of work, whose heads read the cache in
one go; with fewer, each head is one."""

LOG2_E = 1.4426950408889634
"""Scores count in powers of two."""

EVERYTHING = 1 << 40
"""The window of layers that have none."""

_Args = arguments(
    "out q k_cache v_cache block_tables query_starts kv_lengths sequences kv_heads page_size max_pages"
    " out_stride q_stride window k_scale v_scale enough parts segments heads rows queries scratch"
    " scratch_size",
    "scale",
)


_buffers = Buffers()


@simd.device()
def _pieces(a: Any, sequence: int) -> int:
    """Segments of a sequence that are worked on by themselves; 1: it is not divided."""
    starts, length = int32s(a.query_starts), np.int64(int32s(a.kv_lengths)[sequence])
    if a.segments == 1 or starts[sequence + 1] - starts[sequence] != 1:
        return 1
    return (length + SEGMENT - 1) // SEGMENT - max(0, length - a.window) // SEGMENT


@simd.device()
def _part(s: Any, a: Any, sequence: int, head: int, piece: int) -> int:
    """Where a piece's sums for a query head are put."""
    return a.parts + 4 * ((sequence * a.heads + head) * a.segments + piece) * (s.width + 2 * LANES)


@simd.device()
def _take(s: Any, a: Any, u: Any) -> None:
    """Start a unit's queries."""
    q, units = floats(a.q), floats(a.k_scale)
    for h in range(u.heads):
        factor = np.float32(a.scale) * units[u.head + h]
        for query in range(u.queries):
            column = ((u.head + h) * u.group + query % u.group) * u.head_dim
            at = (u.token + query // u.group) * a.q_stride + column
            take_query(s, h * u.pitch + query, q, at, u.head_dim, factor)


@simd.device()
def _give(s: Any, a: Any, u: Any) -> None:
    """Write what became of them, or of a piece of it."""
    out, units = floats(a.out), floats(a.v_scale)
    for h in range(u.heads):
        for query in range(u.queries):
            place, head = h * u.pitch + query, (u.head + h) * u.group + query % u.group
            if u.pieces > 1:
                save(s, place, _part(s, a, u.sequence, head, u.piece))
            else:
                to = (u.token + query // u.group) * a.out_stride + head * u.head_dim
                finish(s, place, out, to, u.head_dim, units[u.head + h])


@simd.device()
def _join_pieces(s: Any, a: Any, sequence: int, head: int, group: int, head_dim: int) -> None:
    """Write what became of a query head of a sequence, if that is in pieces."""
    pieces, query = _pieces(a, sequence), np.int64(0)
    if pieces == 1:
        return
    for piece in range(pieces):
        put_by(s, query)
        restore(s, query, _part(s, a, sequence, head, piece))
        if piece:
            join(s, query)
    to = np.int64(int32s(a.query_starts)[sequence]) * a.out_stride + head * head_dim
    finish(s, query, floats(a.out), to, head_dim, floats(a.v_scale)[head // group])


@functools.cache
def attention(head_dim: int, group: int, size: int = 4) -> Kernel:
    """The kernel for one head size and number of query heads per KV head, both compile-time constants.

    size: bytes of a number in the cache, which is float32, float16, or fp8.
    """
    width = padded(head_dim, TILE)
    straight, shape = decode.fits(group, head_dim), decode.shape(group, head_dim)

    def body(pointer: Any) -> None:
        a = unpack(pointer)
        k_cache, v_cache = stored(a.k_cache, size), stored(a.v_cache, size)
        starts, lengths = int32s(a.query_starts), int32s(a.kv_lengths)
        s = lay_out(a.scratch + thread_index() * a.scratch_size, a.queries, width)
        unit, sequence, passed = claim(pointer), 0, 0
        while sequence < a.sequences:
            rows, pieces = np.int64(starts[sequence + 1]) - np.int64(starts[sequence]), _pieces(a, sequence)
            heads = a.kv_heads if rows == 1 and a.sequences * pieces >= a.enough else 1
            turns = a.kv_heads // heads
            units = (rows + a.rows - 1) // a.rows * turns * pieces
            if unit >= passed + units:
                sequence, passed = sequence + 1, passed + units
                continue
            piece, place = (unit - passed) % pieces, (unit - passed) // pieces
            row = ((rows - 1) // a.rows - place // turns) * a.rows  # the longest rows first
            token, position = starts[sequence] + row, np.int64(lengths[sequence]) - rows + row
            queries, head = min(a.rows, rows - row) * group, place % turns * heads
            direct = straight and queries == group
            pitch = group if direct else -(-queries // QUERIES) * QUERIES
            begin, end = max(0, position - a.window + 1), position + queries // group
            first = (begin // SEGMENT + piece) * SEGMENT
            if pieces > 1:
                end = min(end, first + SEGMENT)
            where = (sequence, token, position, end, queries, pitch, head, heads, piece, pieces, direct)
            u = Unit(*where, group, head_dim, shape)
            _take(s, a, u)
            for segment in range(first, end, SEGMENT):
                if segment > first:
                    for query in range(heads * pitch):
                        put_by(s, query)
                walk(s, a, u, k_cache, v_cache, max(begin, segment), min(end, segment + SEGMENT))
                if segment > first:
                    for query in range(heads * pitch):
                        join(s, query)
            _give(s, a, u)
            unit = claim(pointer)
        if a.segments == 1:
            return
        meet(pointer, thread_count())
        shared = share(a.sequences * a.heads, np.int64(thread_index()), np.int64(thread_count()))
        for i in range(shared[0], shared[1]):
            _join_pieces(s, a, i // a.heads, i % a.heads, group, head_dim)

    return kernel(_Args)(body)


@functools.cache
def _ones(count: int) -> torch.Tensor:
    return torch.ones(count)


def _rows(rows: int, kv_heads: int, threads: int) -> int:
    """Rows of a unit: a power of two."""
    most = max(FEWEST, min(MOST, rows * kv_heads // (UNITS * threads)))
    return 1 << (most.bit_length() - 1)


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
    ones = _ones(kv_heads)
    few = len(q) == sequences < ENOUGH * threads
    segments = -(-block_tables.shape[1] * page_size // SEGMENT) if few else 1
    group, width, rows = q_heads // kv_heads, padded(head_dim, TILE), _rows(len(q), kv_heads, threads)
    queries = max(padded(rows * group, QUERIES), kv_heads * padded(group, QUERIES))
    scratch_size = padded(scratch_bytes(queries, width), LINE)
    parts_size = 4 * sequences * q_heads * segments * found_size(width) if segments > 1 else 0
    scratch = _buffers.least(threads * scratch_size + parts_size).data_ptr()
    attention(head_dim, group, k_cache.itemsize)(
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
        (ones if k_scale is None else k_scale).data_ptr(),
        (ones if v_scale is None else v_scale).data_ptr(),
        ENOUGH * threads,
        scratch + threads * scratch_size,
        segments,
        q_heads,
        rows,
        queries,
        scratch,
        scratch_size,
        scale * LOG2_E,
    )
