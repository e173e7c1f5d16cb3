"""What a sampled token leaves behind for the controls of the next step."""

from __future__ import annotations

import torch

from stretto.kernels.count_tokens import reference
from stretto.kernels.late import Late

__all__ = ["count_tokens"]

gpu = Late("stretto.kernels.count_tokens.triton")


def count_tokens(
    seen: torch.Tensor,
    history: torch.Tensor,
    slots: torch.Tensor,
    positions: torch.Tensor,
    tokens: torch.Tensor,
) -> None:
    """Note one output token for each of some slots, in place.

    seen: int32 [S, V] and history: int32 [S, L + 1], as in `apply_controls.State`. slots: int64 [c],
    distinct; on the GPU rows with a slot of -1 are passed over. positions: int64 [c]. tokens: int32 [c], each
    in [0, V).
    """
    if seen.is_cuda:
        gpu.count_tokens(seen, history, slots, positions, tokens)
    else:
        reference.count_tokens(seen, history, slots, positions, tokens)
