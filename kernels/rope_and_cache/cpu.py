"""Rotary embedding and cache write on the CPU: one pass over the tokens of a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from stretto.kernels import simd
from stretto.kernels.pool import (
    arguments,
    floats,
    int32s,
    int64s,
    kernel,
    share,
    thread_count,
    thread_index,
    threads_for,
    unpack,
)

GRAIN = 1 << 15
"""Elements under which one thread is used: 32 K take it 2 us, and waking another some 3 us."""

_Args = arguments(
    "q k v cos_sin positions slots k_cache v_cache tokens q_heads kv_heads head_dim"
    " q_stride k_stride v_stride"
)


@simd.device()
def _rotate(out: Any, to: int, x: Any, start: int, angles: Any, angle: int, half: int) -> None:
    for i in range(0, half, simd.LANES):
        n = min(simd.LANES, half - i)
        left, right = simd.load_first(x, start + i, n), simd.load_first(x, start + half + i, n)
        cos, sin = simd.load_first(angles, angle + i, n), simd.load_first(angles, angle + half + i, n)
        simd.store_first(out, to + i, simd.sub(simd.mul(left, cos), simd.mul(right, sin)), n)
        simd.store_first(out, to + half + i, simd.add(simd.mul(right, cos), simd.mul(left, sin)), n)


@simd.device()
def _copy(out: Any, to: int, x: Any, start: int, width: int) -> None:
    for i in range(0, width, simd.LANES):
        n = min(simd.LANES, width - i)
        simd.store_first(out, to + i, simd.load_first(x, start + i, n), n)


@kernel(_Args)
def rope_and_cache_kernel(pointer: Any) -> None:
    a = unpack(pointer)
    q, k, v = floats(a.q), floats(a.k), floats(a.v)
    k_cache, v_cache = floats(a.k_cache), floats(a.v_cache)
    angles = floats(a.cos_sin)
    positions, slots = int32s(a.positions), int64s(a.slots)
    width, half = a.head_dim, a.head_dim // 2
    begin, end = share(a.tokens, np.int64(thread_index()), np.int64(thread_count()))
    for token in range(begin, end):
        if slots[token] < 0:
            continue
        angle = np.int64(positions[token]) * width
        for head in range(a.q_heads):
            start = token * a.q_stride + head * width
            _rotate(q, start, q, start, angles, angle, half)
        to = slots[token] * a.kv_heads * width
        for head in range(a.kv_heads):
            start = token * a.k_stride + head * width
            _rotate(k_cache, to + head * width, k, start, angles, angle, half)
        _copy(v_cache, to, v, token * a.v_stride, a.kv_heads * width)


def fits(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor
) -> bool:
    """Whether this kernel handles these tensors: float32 on the CPU, a token's heads side by side."""
    return (
        q.is_cpu
        and q.dtype is k.dtype is v.dtype is k_cache.dtype is v_cache.dtype is torch.float32
        and all(x.stride(1) == x.shape[2] and x.stride(2) == 1 for x in (q, k, v))
        and k_cache.is_contiguous()
        and v_cache.is_contiguous()
    )


def rope_and_cache(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cos_sin: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
) -> None:
    """See `stretto.kernels.rope_and_cache.rope_and_cache`."""
    tokens, q_heads, head_dim = q.shape
    rope_and_cache_kernel(
        threads_for(tokens * (q_heads + 2 * k.shape[1]) * head_dim, GRAIN),
        q.data_ptr(),
        k.data_ptr(),
        v.data_ptr(),
        cos_sin.data_ptr(),
        positions.data_ptr(),
        slots.data_ptr(),
        k_cache.data_ptr(),
        v_cache.data_ptr(),
        tokens,
        q_heads,
        k.shape[1],
        head_dim,
        q.stride(0),
        k.stride(0),
        v.stride(0),
    )
