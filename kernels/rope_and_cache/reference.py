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
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
) -> None:
    """See `stretto.kernels.rope_and_cache.rope_and_cache`."""
    angles = cos_sin[positions.long()]
    q.copy_(rotate(q, angles))
    narrower = k_cache.dtype is not k.dtype
    _write(k_cache, slots, rotate(k, angles), k_scale, narrower)
    _write(v_cache, slots, v, v_scale, narrower)


def _write(
    cache: torch.Tensor, slots: torch.Tensor, x: torch.Tensor, scale: torch.Tensor | None, narrower: bool
) -> None:
    """narrower: whether the cache's type is not the activations', so that they may be too large for it."""
    if scale is not None:
        x = x.float() / scale[:, None]
    if narrower:
        most = torch.finfo(cache.dtype).max
        x = x.clamp(-most, most)
    used = slots >= 0
    cache.flatten(0, 1)[slots[used]] = x[used].to(cache.dtype)
