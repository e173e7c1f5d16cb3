"""A gate of the feed-forward layer: gelu(gate) * up."""

from __future__ import annotations

import torch

from stretto.kernels.gelu_and_mul import reference
from stretto.kernels.late import Late

__all__ = ["gelu_and_mul"]

gpu = Late("stretto.kernels.gelu_and_mul.triton")


def gelu_and_mul(out: torch.Tensor, gate_up: torch.Tensor, tanh: bool) -> None:
    """out = gelu(gate) * up with gelu(y) = y (1 + erf(y / sqrt(2))) / 2.

    With `tanh`, gelu(y) = y (1 + tanh(sqrt(2 / pi) (y + 0.044715 y ** 3))) / 2 (Hendrycks and Gimpel, 2016,
    arXiv:1606.08415). out: [T, I]; gate_up: [T, 2 I], the gate's columns first. Rows may be strided.
    """
    if out.is_cuda:
        gpu.gelu_and_mul(out, gate_up, tanh)
    else:
        reference.gelu_and_mul(out, gate_up, tanh)
