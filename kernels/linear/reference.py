"""A linear layer, plain torch."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def multiply(out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
    """out [T, N] = x [T, K] times weight [N, K] transposed, plus bias [N]."""
    out.copy_(F.linear(x, weight, bias))


def rows(weight: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Rows of the weight, [n, K]."""
    return weight[index]
