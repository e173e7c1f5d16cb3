"""What a controlled sequence has on the device, one row per slot."""

from __future__ import annotations

from typing import NamedTuple

import torch

BIAS, BANS, PENALTIES = 1, 2, 4
"""Bits of `kinds`: which of the three parts a slot has. Rows of the parts that it lacks hold anything."""
IN_PROMPT, IN_OUTPUT = 1, 2
"""What a token of the prompt sets, and what a token of the output adds, in `seen`."""


class State(NamedTuple):
    """Tensors of S slots, V tokens, contexts of L tokens."""

    kinds: torch.Tensor
    """int32 [S]"""
    bias: torch.Tensor
    """float32 [S, V]: added to the logits; -inf for tokens that are not allowed."""
    bans: torch.Tensor
    """int32 [S, W]: runs, each a signed count and so many ids; a count of 0 ends them. -n: n ids that are
    banned before `min_tokens`. n: a bad word of n ids, of which the last is banned wherever the output ends
    with the others. Ids from V on are passed over: a model may name an end that it has no embedding of."""
    seen: torch.Tensor
    """int32 [S, V]: IN_PROMPT if the prompt has the token, plus IN_OUTPUT as often as the output has it."""
    history: torch.Tensor
    """int32 [S, L + 1]: the output's tokens at their positions in the sequence."""
    prompt_lengths: torch.Tensor
    """int32 [S]"""
    min_tokens: torch.Tensor
    """int32 [S]"""
    presence: torch.Tensor
    """float32 [S]"""
    frequency: torch.Tensor
    """float32 [S]"""
    repetition: torch.Tensor
    """float32 [S]"""
