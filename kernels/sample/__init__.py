"""The next token of every row: greedy, or drawn with temperature, top-k, top-p and min-p."""

from __future__ import annotations

import torch

from stretto.kernels.late import Late
from stretto.kernels.sample import reference
from stretto.kernels.sample.state import State

__all__ = ["State", "sample"]

cpu = Late("stretto.kernels.sample.cpu")
gpu = Late("stretto.kernels.sample.triton")


def sample(
    logits: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor, state: State, out: torch.Tensor
) -> None:
    """Write one token id per row to out, and to its slot's last token; it depends on its row alone.

    logits: float32 [n, V], rows may be strided, unchanged. slots: int64 [n], a row's place in the state.
    positions: int64 [n]. out: int32 [n].

    A row with a NaN, or whose largest logit is not finite, gets -1, and its slot 0. Temperature 0 takes the
    largest logit, the lowest index among equals. Otherwise, with the depth y[i] = (max(logits) - logits[i]) /
    temperature, in float32:

    1. top-k keeps the tokens no deeper than the k-th shallowest; 2. top-p keeps, of those, the tokens no
    deeper than the shallowest depth down to which they hold `top_p` of
       their mass, the mass of a token being exp(-y) in whole units of 2 ** -40;
    3. min-p keeps the tokens no deeper than -log(min_p); 4. the token with the largest g[i] - y[i] wins
    (Gumbel-max; Maddison et al., 2014, arXiv:1411.0030), the lowest
       index among equals, with g[i] = -log(-log(1 - v)), v = (bits + 1/2) / 2 ** 32 and `bits` the word i %
       4 of Philox4x32-10 (Salmon et al., 2011, doi:10.1145/2063384.2063405) at counter (i // 4, 0,
       position's low word, position's high word) and key (seed's low word, seed's high word).

    Every filter is a depth, so tokens with equal logits live or die together. Sums of mass are exact
    integers, and exp and log are fixed polynomials without fused multiply-add, so every implementation
    finds the same token.
    """
    if logits.is_cpu and cpu.fits(logits, out):
        cpu.sample(logits, slots, positions, state, out)
    elif logits.is_cuda:
        gpu.sample(logits, slots, positions, state, out)
    else:
        reference.sample(logits, slots, positions, state, out)
