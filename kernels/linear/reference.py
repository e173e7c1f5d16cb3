"""A linear layer, plain torch."""

from __future__ import annotations

import torch


def multiply(out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
    """out [T, N] = x [T, K] times weight [N, K] transposed, plus bias [N].

    GPUs compute with this, straight to where the result is wanted: a copy is one more launch a product.
    """
    if bias is None:
        torch.mm(x, weight.t(), out=out)
    else:
        torch.addmm(bias, x, weight.t(), out=out)


def rows(weight: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Rows of the weight, [n, K]."""
    return weight[index]
