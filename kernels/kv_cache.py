"""What the CPU's kernels that work on a KV cache take."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def fits(
    heads: Sequence[torch.Tensor],
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k_scale: torch.Tensor | None,
    v_scale: torch.Tensor | None,
) -> bool:
    """Whether these tensors are: [T, heads, D] each in float32 on the CPU, a token's heads side by side; the
    caches dense, in float32 or float16, or in fp8 with scales.
    """
    known = (torch.float32, torch.float16) if k_scale is None else (torch.float8_e4m3fn,)
    return (
        all(x.is_cpu and x.dtype is torch.float32 for x in heads)
        and all(x.stride(1) == x.shape[2] and x.stride(2) == 1 for x in heads)
        and k_cache.dtype is v_cache.dtype
        and k_cache.dtype in known
        and (k_scale is None) == (v_scale is None)
        and k_cache.is_contiguous()
        and v_cache.is_contiguous()
    )
