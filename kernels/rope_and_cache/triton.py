"""Rotary embedding and cache write on the GPU: a program for each token and KV head.

A program turns the query heads of its group in place and writes one key and one value. 64 tokens of a model
with 8 KV heads are 512 programs, several for each multiprocessor, and latency is all there is to hide.
Products and sums are not contracted, so float32 results are the reference's to the bit.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from stretto.kernels.generation import choose

CONFIGS = {80: {"num_warps": 2, "num_stages": 1}}
"""Two warps: four query heads of 128 elements are four elements a thread, in each half of the head."""

FP8_MAX = tl.constexpr(448.0)


@triton.jit
def _rotate(x: tl.tensor, cos: tl.tensor, sin: tl.tensor, keep: tl.tensor, HALF: tl.constexpr) -> Any:
    left = tl.load(x, mask=keep, other=0.0).to(tl.float32)
    right = tl.load(x + HALF, mask=keep, other=0.0).to(tl.float32)
    return left * cos - right * sin, right * cos + left * sin


@triton.jit
def _stored(x: tl.tensor, scale: tl.tensor, head: tl.tensor, like: tl.tensor) -> Any:
    """x as a cache of `like`'s type keeps it; with a scale, x / scale, saturated."""
    if scale is not None:
        x = tl.div_rn(x.to(tl.float32), tl.load(scale + head))
        x = tl.clamp(x, -FP8_MAX, FP8_MAX, propagate_nan=tl.PropagateNan.ALL)
    return x.to(like.dtype.element_ty)


@triton.jit(do_not_specialize_on_alignment=["positions", "slots"])
def rope_and_cache_kernel(
    q: tl.tensor,
    k: tl.tensor,
    v: tl.tensor,
    cos_sin: tl.tensor,
    positions: tl.tensor,
    slots: tl.tensor,
    k_cache: tl.tensor,
    v_cache: tl.tensor,
    k_scale: tl.tensor,
    v_scale: tl.tensor,
    q_stride: tl.tensor,
    k_stride: tl.tensor,
    v_stride: tl.tensor,
    cache_stride: tl.tensor,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    GROUP_BLOCK: tl.constexpr,
    HALF_BLOCK: tl.constexpr,
) -> None:
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    HALF: tl.constexpr = HEAD_DIM // 2
    i, member = tl.arange(0, HALF_BLOCK), tl.arange(0, GROUP_BLOCK)
    inside = i < HALF
    angles = cos_sin + tl.load(positions + token).to(tl.int64) * HEAD_DIM + i
    cos = tl.load(angles, mask=inside, other=0.0)
    sin = tl.load(angles + HALF, mask=inside, other=0.0)

    mine = q + token * q_stride + (head * GROUP + member[:, None]) * HEAD_DIM + i[None, :]
    keep = inside[None, :] & (member < GROUP)[:, None]
    left, right = _rotate(mine, cos[None, :], sin[None, :], keep, HALF)
    tl.store(mine, left.to(q.dtype.element_ty), mask=keep)
    tl.store(mine + HALF, right.to(q.dtype.element_ty), mask=keep)

    slot = tl.load(slots + token)
    if slot >= 0:
        to = slot * cache_stride + head * HEAD_DIM + i
        first, second = _rotate(k + token * k_stride + head * HEAD_DIM + i, cos, sin, inside, HALF)
        tl.store(k_cache + to, _stored(first, k_scale, head, k_cache), mask=inside)
        tl.store(k_cache + to + HALF, _stored(second, k_scale, head, k_cache), mask=inside)
        value = v + token * v_stride + head * HEAD_DIM + i
        held = tl.load(value, mask=inside)
        tl.store(v_cache + to, _stored(held, v_scale, head, v_cache), mask=inside)
        held = tl.load(value + HALF, mask=inside)
        tl.store(v_cache + to + HALF, _stored(held, v_scale, head, v_cache), mask=inside)


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
    kv_heads = k.shape[1]
    group = q_heads // kv_heads
    rope_and_cache_kernel[(tokens, kv_heads)](
        q,
        k,
        v,
        cos_sin,
        positions,
        slots,
        k_cache,
        v_cache,
        k_scale,
        v_scale,
        q.stride(0),
        k.stride(0),
        v.stride(0),
        k_cache.stride(1),
        GROUP=group,
        HEAD_DIM=head_dim,
        GROUP_BLOCK=triton.next_power_of_2(group),
        HALF_BLOCK=triton.next_power_of_2(head_dim // 2),
        enable_fp_fusion=False,
        **choose(CONFIGS),
    )
