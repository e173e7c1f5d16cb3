"""The gated unit of Gemma's feed-forward layer (Shazeer, 2020, arXiv:2002.05202), plain torch."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def gelu_and_mul(out: torch.Tensor, gate_up: torch.Tensor, tanh: bool) -> None:
    """See `stretto.kernels.gelu_and_mul.gelu_and_mul`."""
    gate, up = gate_up.float().chunk(2, dim=-1)
    out.copy_(F.gelu(gate, approximate="tanh" if tanh else "none") * up)
