"""Counting sampled tokens, plain torch."""

from __future__ import annotations

import torch

from stretto.kernels.apply_controls.state import IN_OUTPUT


def count_tokens(
    seen: torch.Tensor,
    history: torch.Tensor,
    slots: torch.Tensor,
    positions: torch.Tensor,
    tokens: torch.Tensor,
) -> None:
    """See `stretto.kernels.count_tokens.count_tokens`."""
    seen[slots, tokens.long()] += IN_OUTPUT
    history[slots, positions] = tokens
