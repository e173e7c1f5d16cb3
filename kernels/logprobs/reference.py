"""Log-probabilities in plain torch, all rows at once. The functions here are the definition, bit for bit."""

from __future__ import annotations

import math

import torch

from stretto.kernels.sample.reference import exp

BLOCK, LANES = 1024, 16


def log_sum(depths: torch.Tensor) -> torch.Tensor:
    """log(sum(exp(depths))) of every row, float64 [n, 1]; depths: float32 [n, V], none above 0."""
    rows, size = depths.shape
    padded = depths.new_full((rows, -(-size // BLOCK) * BLOCK), -math.inf)
    padded[:, :size] = depths
    masses = exp(padded.clamp(min=-87.0)).view(rows, -1, BLOCK // LANES, LANES)
    sums = torch.zeros_like(masses[:, :, 0])
    for part in masses.unbind(2):
        sums = sums + part
    while sums.shape[-1] > 1:
        left, right = sums.chunk(2, dim=-1)
        sums = left + right
    return sums.squeeze(-1).double().sum(1, keepdim=True).log()


def logprobs(
    logits: torch.Tensor,
    tokens: torch.Tensor,
    values: torch.Tensor,
    ranks: torch.Tensor,
    top_ids: torch.Tensor,
    top: torch.Tensor,
) -> None:
    """See `stretto.kernels.logprobs.logprobs`."""
    largest = logits.amax(1, keepdim=True)
    failed = ~largest.isfinite() | (tokens < 0).unsqueeze(1)
    total = log_sum(logits - largest)

    def value(x: torch.Tensor) -> torch.Tensor:
        exact = (x.double() - largest.double()) - total
        return exact.float().masked_fill(failed, math.nan)

    chosen = logits.gather(1, tokens.clamp(min=0).long().unsqueeze(1))
    values.copy_(value(chosen).squeeze(1))
    ranks.copy_(1 + (logits > chosen).sum(1)).masked_fill_(failed.squeeze(1), 0)
    if width := top.shape[1]:
        highest, ids = logits.sort(dim=1, descending=True, stable=True)
        top.copy_(value(highest[:, :width]))
        top_ids.copy_(ids[:, :width].masked_fill(failed, -1))
