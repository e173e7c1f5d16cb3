"""The gated unit of Llama's feed-forward layer (Shazeer, 2020, arXiv:2002.05202), plain torch."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def silu_and_mul(out: torch.Tensor, gate_up: torch.Tensor) -> None:
    """See `stretto.kernels.silu_and_mul.silu_and_mul`."""
    gate, up = gate_up.float().chunk(2, dim=-1)
    out.copy_(F.silu(gate) * up)
