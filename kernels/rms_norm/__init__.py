"""Root mean square normalisation, with the residual stream's addition fused in."""

from __future__ import annotations

import torch

from stretto.kernels.late import Late
from stretto.kernels.rms_norm import reference

__all__ = ["rms_norm"]

cpu = Late("stretto.kernels.rms_norm.cpu")
gpu = Late("stretto.kernels.rms_norm.triton")


def rms_norm(
    out: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    residual: torch.Tensor | None = None,
) -> None:
    """out = norm(x) * weight, or, with a residual: residual += x, then out = norm(residual) * weight.

    out, x: [T, H], or without a residual [T, heads, H], a norm for each head; strided in all but the elements
    of a row. out may be x. weight: [H]. residual: float32 [T, H], updated in place. norm(y) = y /
    sqrt(mean(y * y) + eps), in float32 whatever the dtypes.
    """
    if out.is_cpu and cpu.fits(out, x, weight, residual):
        cpu.rms_norm(out, x, weight, eps, residual)
    elif out.is_cuda:
        gpu.rms_norm(out, x, weight, eps, residual)
    else:
        reference.rms_norm(out, x, weight, eps, residual)
