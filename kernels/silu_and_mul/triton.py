"""SiLU-and-multiply on the GPU."""

from __future__ import annotations

import torch

from stretto.kernels.gated import gated


def silu_and_mul(out: torch.Tensor, gate_up: torch.Tensor) -> None:
    """See `stretto.kernels.silu_and_mul.silu_and_mul`."""
    gated(out, gate_up, "silu")
