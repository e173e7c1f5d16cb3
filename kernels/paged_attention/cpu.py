"""Paged attention on the CPU: online softmax (Milakov and Gimelshein, 2018, arXiv:1805.02867) in tiles.

A row's keys and values are walked in tiles of 16 tokens at fixed absolute positions, gathered over pages of
whatever size. Every row goes through the same instructions in the same order, be it a decode or one of many
rows of a prompt chunk, so its bits depend on its query and its keys and values alone. Rows of one sequence
are worked on together only to share loads, and the work of turning a tile of keys on its side.

Measured on one core (Zen 5), queries one by one -> eight at a time: 64 decodes on 192 tokens 10 -> 27 GB/s of
KV; 256 rows on 2,048 tokens 42 -> 95 GFLOP/s. An fp8 cache, in times of a float32 one: decodes 0.8 on 192
tokens and 0.66 on 4,096, which are read from memory; 256 rows on 2,048 tokens 1.04.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import torch

from stretto.kernels import simd
from stretto.kernels.paged_attention.tile import QUERIES, blend, dots
from stretto.kernels.pool import Kernel, arguments, claim, floats, fp8s, int32s, kernel, unpack

TILE = simd.LANES
"""Tokens of a tile: one per lane."""
ROWS = 8
"""Query rows of one sequence that are worked on together: with all heads of their group, a unit of work."""

EVERYTHING = 1 << 40
"""The window of layers that have none."""

_Args = arguments(
    "out q k_cache v_cache block_tables query_starts kv_lengths sequences kv_heads page_size max_pages"
    " out_stride q_stride window k_scale v_scale",
    "scale",
)


class _Scratch(NamedTuple):
    """A thread's buffers, flat float32. A query is one head of a row; `width` is head_dim, padded."""

    queries: Any
    """[queries, width], scaled."""
    acc: Any
    """[queries, width]: weighted sums of values so far."""
    sums: Any
    """[queries, 16]: sums of weights so far, by lane."""
    maxima: Any
    """[queries]: largest scores so far."""
    keys: Any
    """[width, 16]: a tile's keys, turned."""
    offsets: Any
    """int64 [16]: where in the cache a tile's tokens are."""
    scores: Any
    """[QUERIES, 16]: scores, then weights."""
    decays: Any
    """[QUERIES, 16]: what the sums so far are still worth."""


@simd.device()
def _scratch(queries: int, width: int) -> Any:
    return _Scratch(
        np.empty(queries * width, np.float32),
        np.empty(queries * width, np.float32),
        np.empty(queries * TILE, np.float32),
        np.empty(queries, np.float32),
        np.empty(width * TILE, np.float32),
        np.empty(TILE, np.int64),
        np.empty(QUERIES * TILE, np.float32),
        np.empty(QUERIES * TILE, np.float32),
    )


@simd.device()
def _take_query(s: Any, query: int, q: Any, at: int, head_dim: int, scale: Any) -> None:
    """Start a query: copy it, scaled, and clear its sums."""
    width = -(-head_dim // TILE) * TILE
    for i in range(0, head_dim, TILE):
        part = simd.load_first(q, at + i, min(TILE, head_dim - i))
        simd.store(s.queries, query * width + i, simd.mul(part, simd.splat(scale)))
        simd.store(s.acc, query * width + i, simd.splat(np.float32(0.0)))
    simd.store(s.sums, query * TILE, simd.splat(np.float32(0.0)))
    s.maxima[query] = -np.inf


@simd.device()
def _locate(
    s: Any, pages: Any, table: int, first: int, hidden: int, count: int, page_size: int, stride: int
) -> None:
    """Find a tile's tokens [hidden, count) in the cache; lanes before and past them repeat one of them."""
    for lane in range(TILE):
        position = first + min(max(lane, hidden), count - 1)
        page = np.int64(pages[table + position // page_size])
        s.offsets[lane] = (page * page_size + position % page_size) * stride


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
def _soften(s: Any, place: int, query: int, hidden: int, seen: int) -> None:
    """Turn a query's scores into weights under its new largest score: exactly 0 but for those of the tokens
    [hidden, seen), of which there is one at least.
    """
    at, none = place * TILE, simd.splat(np.float32(-np.inf))
    scores = simd.keep_first(none, hidden, simd.keep_first(simd.load(s.scores, at), seen, none))
    before = s.maxima[query]
    highest = max(before, simd.max_lanes(scores))
    decay = simd.exp(simd.splat(before - highest))
    weights = simd.exp(simd.sub(scores, simd.splat(highest)))
    zero = simd.splat(np.float32(0.0))
    weights = simd.keep_first(zero, hidden, simd.keep_first(weights, seen, zero))
    simd.store(s.scores, at, weights)
    simd.store(s.decays, at, decay)
    simd.store(s.sums, query * TILE, simd.fma(simd.load(s.sums, query * TILE), decay, weights))
    s.maxima[query] = highest


@simd.device()
def _meet(
    s: Any,
    query: int,
    count: int,
    ahead: int,
    window: int,
    group: int,
    tokens: int,
    cache: Any,
    base: int,
    head_dim: int,
) -> None:
    """Up to QUERIES queries meet the tile; `ahead`: by how many positions row 0 is past the tile's first."""
    width = -(-head_dim // TILE) * TILE
    dots(count, s.queries, query * width, width, s.keys.ctypes.data, head_dim, s.scores)
    for place in range(count):
        seen = ahead + (query + place) // group + 1
        _soften(s, place, query + place, max(0, seen - window), min(TILE, seen))
    for column in range(0, head_dim, TILE):
        columns, at = min(TILE, head_dim - column), query * width + column
        blend(count, s.acc, at, width, s.decays, s.scores, tokens, cache, s.offsets, base + column, columns)


@simd.device()
def _finish(s: Any, query: int, out: Any, to: int, head_dim: int, unit: Any) -> None:
    """Write a query's result; unit: what a value of 1 in the cache stands for."""
    width = -(-head_dim // TILE) * TILE
    share = simd.splat(unit / simd.sum_lanes(simd.load(s.sums, query * TILE)))
    for i in range(0, head_dim, TILE):
        part = simd.mul(simd.load(s.acc, query * width + i), share)
        simd.store_first(out, to + i, part, min(TILE, head_dim - i))


@functools.cache
def attention(head_dim: int, group: int, fp8: bool = False) -> Kernel:
    """The kernel for one head size and number of query heads per KV head, both compile-time constants; fp8:
    for a cache in that type, with scales.
    """
    width = -(-head_dim // TILE) * TILE

    def body(pointer: Any) -> None:
        a = unpack(pointer)
        out, q = floats(a.out), floats(a.q)
        if fp8:
            k_cache, v_cache = fp8s(a.k_cache), fp8s(a.v_cache)
        else:
            k_cache, v_cache = floats(a.k_cache), floats(a.v_cache)
        pages, starts, lengths = int32s(a.block_tables), int32s(a.query_starts), int32s(a.kv_lengths)
        scale, stride = np.float32(a.scale), a.kv_heads * head_dim
        s = _scratch(ROWS * group, width)
        unit, sequence, passed = claim(pointer), 0, 0
        while sequence < a.sequences:
            rows = np.int64(starts[sequence + 1]) - np.int64(starts[sequence])
            units = (rows + ROWS - 1) // ROWS * a.kv_heads
            if unit >= passed + units:
                sequence, passed = sequence + 1, passed + units
                continue
            kv_head = (unit - passed) % a.kv_heads
            first_row = (units - 1 - unit + passed) // a.kv_heads * ROWS  # the longest rows first
            queries = min(ROWS, rows - first_row) * group
            position = np.int64(lengths[sequence]) - rows + first_row
            token, head, base = starts[sequence] + first_row, kv_head * group, kv_head * head_dim
            key_unit, value_unit = np.float32(1.0), np.float32(1.0)
            if fp8:
                key_unit, value_unit = floats(a.k_scale)[kv_head], floats(a.v_scale)[kv_head]
            for query in range(queries):
                at = (token + query // group) * a.q_stride + (head + query % group) * head_dim
                _take_query(s, query, q, at, head_dim, scale * key_unit)
            end, begin = position + queries // group, max(0, position - a.window + 1)
            for first in range(begin // TILE * TILE, end, TILE):
                tokens, hidden = min(TILE, end - first), max(0, begin - first)
                _locate(s, pages, sequence * a.max_pages, first, hidden, tokens, a.page_size, stride)
                _turn(s, k_cache, base, head_dim)
                last = min(queries, (first + TILE - 1 + a.window - position) * group)  # who sees any of it
                for query in range(max(0, first - position) * group, last, QUERIES):
                    count, ahead = min(QUERIES, last - query), position - first
                    _meet(s, query, count, ahead, a.window, group, tokens, v_cache, base, head_dim)
            for query in range(queries):
                to = (token + query // group) * a.out_stride + (head + query % group) * head_dim
                _finish(s, query, out, to, head_dim, value_unit)
            unit = claim(pointer)

    return kernel(_Args)(body)


def fits(
    out: torch.Tensor,
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
) -> bool:
    """Whether this kernel handles these tensors: float32 on the CPU, a token's heads side by side; the cache
    in float32, or in fp8 with scales.
    """
    stored = torch.float32 if k_scale is None else torch.float8_e4m3fn
    return (
        q.is_cpu
        and out.dtype is q.dtype is torch.float32
        and k_cache.dtype is v_cache.dtype is stored
        and (k_scale is None) == (v_scale is None)
        and all(x.stride(1) == x.shape[2] and x.stride(2) == 1 for x in (out, q))
        and k_cache.is_contiguous()
        and v_cache.is_contiguous()
    )


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
    attention(head_dim, q_heads // kv_heads, k_scale is not None)(
        torch.get_num_threads(),
        out.data_ptr(),
        q.data_ptr(),
        k_cache.data_ptr(),
        v_cache.data_ptr(),
        block_tables.data_ptr(),
        query_starts.data_ptr(),
        kv_lengths.data_ptr(),
        kv_lengths.shape[0],
        kv_heads,
        page_size,
        block_tables.stride(0),
        out.stride(0),
        q.stride(0),
        window or EVERYTHING,
        0 if k_scale is None else k_scale.data_ptr(),
        0 if v_scale is None else v_scale.data_ptr(),
        scale,
    )
