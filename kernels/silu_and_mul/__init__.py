"""The gate of the feed-forward layer: silu(gate) * up."""

from __future__ import annotations

import torch

from stretto.kernels.late import Late
from stretto.kernels.silu_and_mul import reference

__all__ = ["silu_and_mul"]

cpu = Late("stretto.kernels.silu_and_mul.cpu")
gpu = Late("stretto.kernels.silu_and_mul.triton")


def silu_and_mul(out: torch.Tensor, gate_up: torch.Tensor) -> None:
    """out = silu(gate) * up with silu(y) = y / (1 + exp(-y)).

    out: [T, I]; gate_up: [T, 2 I], the gate's columns first. Rows may be strided.
    """
    if out.is_cpu and cpu.fits(out, gate_up):
        cpu.silu_and_mul(out, gate_up)
    elif out.is_cuda:
        gpu.silu_and_mul(out, gate_up)
    else:
        reference.silu_and_mul(out, gate_up)
