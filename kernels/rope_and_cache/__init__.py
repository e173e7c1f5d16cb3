"""Rotary position embedding, fused with the write of keys and values into the paged cache."""

from __future__ import annotations

import torch

from stretto.kernels.late import Late
from stretto.kernels.rope_and_cache import reference

__all__ = ["rope_and_cache"]

cpu = Late("stretto.kernels.rope_and_cache.cpu")
gpu = Late("stretto.kernels.rope_and_cache.triton")


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
    """Rotate q in place; write rotated k, and v as it is, into the caches at `slots`.

    q: [T, Hq, D]; k, v: [T, Hk, D]; tokens may be strided (slices of one qkv matrix), k is left as it was.
    cos_sin: float32 [positions, D], cosines in the first half, sines in the second; element i pairs with i
    + D/2 (the layout of GPT-NeoX and Hugging Face). positions: int32 [T]. slots: int64 [T], page *
    page_size + offset. k_cache, v_cache: [pages, page_size, Hk, D]. Two tokens must not share a slot.

    The caches are of the type of k and v; on the CPU float16 as well, saturated. k_scale, v_scale: float32
    [Hk], or None; with them the caches are fp8 (e4m3) and hold x / scale, saturated at the type's 448. Off
    the CPU a negative slot writes nothing, for rows that only pad a captured graph.
    """
    if q.is_cpu and cpu.fits(q, k, v, k_cache, v_cache, k_scale, v_scale):
        cpu.rope_and_cache(q, k, v, cos_sin, positions, slots, k_cache, v_cache, k_scale, v_scale)
        return
    run = gpu.rope_and_cache if q.is_cuda else reference.rope_and_cache
    run(q, k, v, cos_sin, positions, slots, k_cache, v_cache, k_scale, v_scale)
