"""Paged attention on the CPU: online softmax (Milakov and Gimelshein, 2018, arXiv:1805.02867) over tiles of
keys.

A row's keys and values are walked in tiles of 16 tokens at fixed absolute positions, gathered over pages of
whatever size. Every row goes through the same instructions in the same order, be it a decode or one of many
rows of a prompt chunk, so its bits depend on its query and its keys and values alone. Rows of one sequence
share a block only to share the work of turning a tile of keys on its side.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch

from stretto.kernels import simd
from stretto.kernels.pool import Kernel, arguments, claim, floats, int32s, kernel, unpack

TILE = simd.LANES
"""Tokens of a tile: one per lane."""
ROWS = 8
"""Query rows of one sequence that are worked on together."""

_Args = arguments(
    "out q k_cache v_cache block_tables query_starts kv_lengths sequences kv_heads parts page_size max_pages"
    " out_stride q_stride",
    "scale",
)


@simd.device()
def _locate(
    offsets: Any, pages: Any, table: int, first: int, count: int, page_size: int, stride: int
) -> None:
    """Offsets in the cache of a tile's tokens; lanes past the last token repeat it."""
    for lane in range(TILE):
        position = first + min(lane, count - 1)
        page = np.int64(pages[table + position // page_size])
        offsets[lane] = (page * page_size + position % page_size) * stride


@simd.device()
def _turn(keys: Any, cache: Any, offsets: Any, base: int, head_dim: int) -> None:
    """keys[i, t] = element i of token t's key."""
    whole = head_dim - head_dim % TILE
    for column in range(0, whole, TILE):
        simd.load_columns(cache, offsets, base + column, keys, column * TILE)
    for column in range(whole, head_dim):
        for lane in range(TILE):
            keys[column * TILE + lane] = cache[offsets[lane] + base + column]


@simd.device()
def _dots(q: Any, start: int, keys: Any, head_dim: int) -> Any:
    """q . k for the tile's 16 keys: one running sum over the even elements, one over the odd ones."""
    even = simd.splat(np.float32(0.0))
    odd = simd.splat(np.float32(0.0))
    for i in range(0, head_dim, 2):
        even = simd.fma(simd.splat(q[start + i]), simd.load(keys, i * TILE), even)
        odd = simd.fma(simd.splat(q[start + i + 1]), simd.load(keys, (i + 1) * TILE), odd)
    return simd.add(even, odd)


@simd.device()
def _blend(
    acc: Any,
    at: int,
    decay: Any,
    weights: Any,
    count: int,
    cache: Any,
    offsets: Any,
    base: int,
    head_dim: int,
) -> None:
    """acc = acc * decay + weights . values, in order of position."""
    whole = head_dim - head_dim % TILE
    for column in range(0, whole, TILE):
        total = simd.mul(simd.load(acc, at + column), decay)
        for lane in range(count):
            value = simd.load(cache, offsets[lane] + base + column)
            total = simd.fma(simd.splat(weights[lane]), value, total)
        simd.store(acc, at + column, total)
    if whole < head_dim:
        total = simd.mul(simd.load(acc, at + whole), decay)
        for lane in range(count):
            value = simd.load_first(cache, offsets[lane] + base + whole, head_dim - whole)
            total = simd.fma(simd.splat(weights[lane]), value, total)
        simd.store(acc, at + whole, total)


@simd.device()
def _soften(scores: Any, count: int, maxima: Any, sums: Any, query: int, weights: Any) -> Any:
    """Weights of the tile's first `count` tokens under the new running maximum; returns the old ones'
    decay.
    """
    scores = simd.keep_first(scores, count, simd.splat(np.float32(-np.inf)))
    highest = max(maxima[query], simd.max_lanes(scores))
    decay = simd.exp(simd.splat(maxima[query] - highest))
    parts = simd.exp(simd.sub(scores, simd.splat(highest)))
    parts = simd.keep_first(parts, count, simd.splat(np.float32(0.0)))
    simd.store(weights, 0, parts)
    simd.store(sums, query * TILE, simd.fma(simd.load(sums, query * TILE), decay, parts))
    maxima[query] = highest
    return decay


@simd.device()
def _finish(out: Any, to: int, acc: Any, at: int, sums: Any, query: int, head_dim: int) -> None:
    share = np.float32(1.0) / simd.sum_lanes(simd.load(sums, query * TILE))
    for i in range(head_dim):
        out[to + i] = acc[at + i] * share


@functools.cache
def attention(head_dim: int, group: int) -> Kernel:
    """The kernel for one head size (even) and number of query heads per KV head, both compile-time
    constants.
    """
    width = -(-head_dim // TILE) * TILE

    def body(pointer: Any) -> None:
        a = unpack(pointer)
        out, q = floats(a.out), floats(a.q)
        k_cache, v_cache = floats(a.k_cache), floats(a.v_cache)
        pages = int32s(a.block_tables)
        starts, lengths = int32s(a.query_starts), int32s(a.kv_lengths)
        scale = simd.splat(np.float32(a.scale))
        heads = group // a.parts
        keys = np.empty(width * TILE, np.float32)
        weights = np.empty(TILE, np.float32)
        offsets = np.empty(TILE, np.int64)
        acc = np.empty(ROWS * group * width, np.float32)
        sums = np.empty(ROWS * group * TILE, np.float32)
        maxima = np.empty(ROWS * group, np.float32)

        unit, sequence, passed = claim(pointer), 0, 0
        while sequence < a.sequences:
            start = np.int64(starts[sequence])
            rows = np.int64(starts[sequence + 1]) - start
            blocks = (rows + ROWS - 1) // ROWS
            units = blocks * a.kv_heads * a.parts
            if unit >= passed + units:
                sequence, passed = sequence + 1, passed + units
                continue
            rest = unit - passed
            begin = (blocks - 1 - rest // (a.kv_heads * a.parts)) * ROWS
            count = min(ROWS, rows - begin)
            kv_head = rest // a.parts % a.kv_heads
            head = kv_head * group + rest % a.parts * heads
            base = kv_head * head_dim
            position = np.int64(lengths[sequence]) - rows + begin

            acc[:] = 0
            sums[:] = 0
            maxima[:] = -np.inf
            for first in range(0, position + count, TILE):
                tokens = min(TILE, position + count - first)
                _locate(
                    offsets, pages, sequence * a.max_pages, first, tokens, a.page_size, a.kv_heads * head_dim
                )
                _turn(keys, k_cache, offsets, base, head_dim)
                for row in range(max(0, first - position), count):
                    seen = min(TILE, position + row + 1 - first)
                    for h in range(heads):
                        query = row * heads + h
                        at = (start + begin + row) * a.q_stride + (head + h) * head_dim
                        scores = simd.mul(_dots(q, at, keys, head_dim), scale)
                        decay = _soften(scores, seen, maxima, sums, query, weights)
                        _blend(acc, query * width, decay, weights, seen, v_cache, offsets, base, head_dim)
            for row in range(count):
                for h in range(heads):
                    query = row * heads + h
                    to = (start + begin + row) * a.out_stride + (head + h) * head_dim
                    _finish(out, to, acc, query * width, sums, query, head_dim)
            unit = claim(pointer)

    return kernel(_Args)(body)


def fits(out: torch.Tensor, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor) -> bool:
    """Whether this kernel handles these tensors: float32 on the CPU, a token's heads side by side."""
    return (
        q.is_cpu
        and out.dtype is q.dtype is k_cache.dtype is v_cache.dtype is torch.float32
        and all(x.stride(1) == x.shape[2] and x.stride(2) == 1 for x in (out, q))
        and k_cache.is_contiguous()
        and v_cache.is_contiguous()
        and q.shape[2] % 2 == 0
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
) -> None:
    """See `stretto.kernels.paged_attention.paged_attention`."""
    tokens, q_heads, head_dim = q.shape
    _, page_size, kv_heads, _ = k_cache.shape
    group = q_heads // kv_heads
    threads = torch.get_num_threads()
    attention(head_dim, group)(
        threads,
        out.data_ptr(),
        q.data_ptr(),
        k_cache.data_ptr(),
        v_cache.data_ptr(),
        block_tables.data_ptr(),
        query_starts.data_ptr(),
        kv_lengths.data_ptr(),
        kv_lengths.shape[0],
        kv_heads,
        group if tokens * kv_heads < 4 * threads else 1,
        page_size,
        block_tables.stride(0),
        out.stride(0),
        q.stride(0),
        scale,
    )
