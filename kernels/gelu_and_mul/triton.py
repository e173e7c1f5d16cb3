"""GELU-and-multiply on the GPU."""

from __future__ import annotations

import torch

from stretto.kernels.gated import gated


def gelu_and_mul(out: torch.Tensor, gate_up: torch.Tensor, tanh: bool) -> None:
    """See `stretto.kernels.gelu_and_mul.gelu_and_mul`."""
    gated(out, gate_up, "gelu_tanh" if tanh else "gelu_erf")
