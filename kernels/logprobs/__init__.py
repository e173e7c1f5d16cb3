"""How likely tokens are: log-probability, rank, and the likeliest alternatives."""

from __future__ import annotations

import torch

from stretto.kernels.late import Late
from stretto.kernels.logprobs import reference

__all__ = ["logprobs"]

cpu = Late("stretto.kernels.logprobs.cpu")
gpu = Late("stretto.kernels.logprobs.triton")


def logprobs(
    logits: torch.Tensor,
    tokens: torch.Tensor,
    values: torch.Tensor,
    ranks: torch.Tensor,
    top_ids: torch.Tensor,
    top: torch.Tensor,
) -> None:
    """Natural logarithms of the softmax of each row of logits, at its token and at its k likeliest.

    logits: float32 [n, V], rows may be strided, unchanged; V is below 2 ** 24. tokens: int32 [n]. Written:
    values float32 [n]; ranks int32 [n], 1 and one more for each logit that is larger than the token's;
    top_ids int32 [n, k] and top float32 [n, k], by falling logit and rising id, k at most V and maybe 0. A
    row with a NaN, or whose largest logit is not finite, or whose token is negative, gets NaN, rank 0 and ids
    of -1.

    With the row's largest logit m, the value at x is (x - m) - log(sum) in float64, rounded once. The sum of
    exp(logit - m) has a fixed order: 16 running float32 sums over blocks of 1024 tokens, folded by halves,
    and the blocks' sums added in float64; exp is `sample`'s, which bottoms out at -87. So a row's bits depend
    on nothing but the row, and every implementation finds the same.
    """
    if logits.is_cpu and cpu.fits(logits, values, ranks, top_ids, top):
        cpu.logprobs(logits, tokens, values, ranks, top_ids, top)
    elif logits.is_cuda:
        gpu.logprobs(logits, tokens, values, ranks, top_ids, top)
    else:
        reference.logprobs(logits, tokens, values, ranks, top_ids, top)
