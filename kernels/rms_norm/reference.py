"""Root mean square normalisation (Zhang and Sennrich, 2019, arXiv:1910.07467), plain torch."""

from __future__ import annotations

import torch


def rms_norm(
    out: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    residual: torch.Tensor | None = None,
) -> None:
    """See `stretto.kernels.rms_norm.rms_norm`."""
    hidden = x.float()
    if residual is not None:
        residual += hidden
        hidden = residual
    scale = torch.rsqrt(hidden.square().mean(dim=-1, keepdim=True) + eps)
    out.copy_(hidden * scale * weight.float())
