"""Rotary embedding and cache write on the CPU: one pass over the tokens of a step."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch

from stretto.kernels import kv_cache, simd
from stretto.kernels.pool import (
    Kernel,
    arguments,
    floats,
    int32s,
    int64s,
    kernel,
    share,
    stored,
    thread_count,
    thread_index,
    threads_for,
    unpack,
)

GRAIN = 1 << 15
"""Elements under which one thread is used: 32 K take it 2 us, and waking another some 3 us."""

_Args = arguments(
    "q k v cos_sin positions slots k_cache v_cache tokens q_heads kv_heads head_dim"
    " q_stride k_stride v_stride k_scale v_scale"
)


@simd.device()
def _rotate(out: Any, to: int, x: Any, start: int, angles: Any, angle: int, half: int, unit: Any) -> None:
    """Write a head's halves, turned, and divided by `unit` where there is one."""
    for i in range(0, half, simd.LANES):
        n = min(simd.LANES, half - i)
        left, right = simd.load_first(x, start + i, n), simd.load_first(x, start + half + i, n)
        cos, sin = simd.load_first(angles, angle + i, n), simd.load_first(angles, angle + half + i, n)
        first = simd.sub(simd.mul(left, cos), simd.mul(right, sin))
        second = simd.add(simd.mul(right, cos), simd.mul(left, sin))
        if unit is not None:
            first, second = simd.div(first, simd.splat(unit)), simd.div(second, simd.splat(unit))
        simd.store_first(out, to + i, first, n)
        simd.store_first(out, to + half + i, second, n)


@simd.device()
def _copy(out: Any, to: int, x: Any, start: int, width: int, unit: Any) -> None:
    for i in range(0, width, simd.LANES):
        n = min(simd.LANES, width - i)
        part = simd.load_first(x, start + i, n)
        if unit is not None:
            part = simd.div(part, simd.splat(unit))
        simd.store_first(out, to + i, part, n)


@simd.device()
def _rotate_queries(a: Any, token: int, q: Any, angles: Any, angle: int) -> None:
    for head in range(a.q_heads):
        start = token * a.q_stride + head * a.head_dim
        _rotate(q, start, q, start, angles, angle, a.head_dim // 2, None)


@functools.cache
def rotation(size: int = 4) -> Kernel:
    """The kernel for a cache whose numbers have `size` bytes: float32, float16, or fp8 with scales."""
    fp8 = size == 1

    def body(pointer: Any) -> None:
        a = unpack(pointer)
        q, k, v = floats(a.q), floats(a.k), floats(a.v)
        k_cache, v_cache = stored(a.k_cache, size), stored(a.v_cache, size)
        angles, width = floats(a.cos_sin), a.head_dim
        positions, slots = int32s(a.positions), int64s(a.slots)
        begin, end = share(a.tokens, np.int64(thread_index()), np.int64(thread_count()))
        for token in range(begin, end):
            if slots[token] < 0:
                continue
            angle = np.int64(positions[token]) * width
            _rotate_queries(a, token, q, angles, angle)
            for head in range(a.kv_heads):
                k_unit = floats(a.k_scale)[head] if fp8 else None
                v_unit = floats(a.v_scale)[head] if fp8 else None
                to, at = (slots[token] * a.kv_heads + head) * width, head * width
                _rotate(k_cache, to, k, token * a.k_stride + at, angles, angle, width // 2, k_unit)
                _copy(v_cache, to, v, token * a.v_stride + at, width, v_unit)

    return kernel(_Args)(body)


def fits(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
) -> bool:
    """Whether this kernel handles these tensors; see `kv_cache.py`."""
    return kv_cache.fits((q, k, v), k_cache, v_cache, k_scale, v_scale)


def rope_and_cache(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cos_sin: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
) -> None:
    """See `stretto.kernels.rope_and_cache.rope_and_cache`."""
    tokens, q_heads, head_dim = q.shape
    rotation(k_cache.itemsize)(
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
        0 if k_scale is None else k_scale.data_ptr(),
        0 if v_scale is None else v_scale.data_ptr(),
    )
