"""Rotary embedding (Su et al., 2021, arXiv:2104.09864) and the write into the paged KV cache, plain torch."""

from __future__ import annotations

import torch


def rotate(x: torch.Tensor, cos_sin: torch.Tensor) -> torch.Tensor:
    """Rotate the halves of x [T, heads, D] by the angles of cos_sin [T, D]: cosines, then sines."""
    cos, sin = cos_sin.unsqueeze(1).chunk(2, dim=-1)
    left, right = x.float().chunk(2, dim=-1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)


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
    angles = cos_sin[positions.long()]
    q.copy_(rotate(q, angles))
    k_cache.flatten(0, 1)[slots] = rotate(k, angles).to(k_cache.dtype)
    v_cache.flatten(0, 1)[slots] = v.to(v_cache.dtype)
