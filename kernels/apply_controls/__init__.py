"""What a request does to its logits before sampling: biases, bans and penalties."""

from __future__ import annotations

import torch

from stretto.kernels.apply_controls import reference
from stretto.kernels.apply_controls.state import BANS, BIAS, IN_OUTPUT, IN_PROMPT, PENALTIES, State
from stretto.kernels.late import Late

__all__ = ["BANS", "BIAS", "IN_OUTPUT", "IN_PROMPT", "PENALTIES", "State", "apply_controls"]

cpu = Late("stretto.kernels.apply_controls.cpu")
gpu = Late("stretto.kernels.apply_controls.triton")


def apply_controls(
    logits: torch.Tensor, rows: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor, state: State
) -> None:
    """Change some rows of the logits in place; each row depends on its own slot alone.

    logits: float32 [n, V], rows may be strided. rows: int64 [c], distinct. slots: int64 [c]; on the
    GPU rows with a slot of -1 are passed over. positions: int64 [c], the places in their sequences of the
    tokens that will be sampled.

    In this order, which is vLLM's: 1. the bias; 2. a ban sets the logit to -inf: bad words, and the ids
    banned before `min_tokens`, of which `position - prompt_length` have come; 3. the logit of a token that
    prompt or output has is divided by the repetition penalty where it is above 0, else multiplied (Keskar et
    al., 2019, arXiv:1909.05858); 4. `frequency` times the token's count in the output is subtracted, then
    `presence` where that count is not 0. All in float32, one rounding an operation.
    """
    if logits.is_cpu and cpu.fits(logits, state):
        cpu.apply_controls(logits, rows, slots, positions, state)
    elif logits.is_cuda:
        gpu.apply_controls(logits, rows, slots, positions, state)
    else:
        reference.apply_controls(logits, rows, slots, positions, state)
