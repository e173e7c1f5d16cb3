"""Counting sampled tokens on the GPU."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from stretto.kernels.apply_controls.state import IN_OUTPUT

BLOCK = 128
_STEP = tl.constexpr(IN_OUTPUT)


@triton.jit(do_not_specialize=["count"])
def count_tokens_kernel(
    seen: tl.tensor,
    history: tl.tensor,
    slots: tl.tensor,
    positions: tl.tensor,
    tokens: tl.tensor,
    count: tl.tensor,
    vocabulary: tl.tensor,
    width: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    slot = tl.load(slots + rows, mask=rows < count, other=-1)
    keep = slot >= 0
    token = tl.load(tokens + rows, mask=keep, other=0)
    at = seen + slot * vocabulary + token
    tl.store(at, tl.load(at, mask=keep, other=0) + _STEP, mask=keep)
    place = slot * width + tl.load(positions + rows, mask=keep, other=0)
    tl.store(history + place, token, mask=keep)


def count_tokens(
    seen: torch.Tensor,
    history: torch.Tensor,
    slots: torch.Tensor,
    positions: torch.Tensor,
    tokens: torch.Tensor,
) -> None:
    """See `stretto.kernels.count_tokens.count_tokens`."""
    count_tokens_kernel[(triton.cdiv(len(slots), BLOCK),)](
        seen, history, slots, positions, tokens, len(slots), seen.shape[1], history.shape[1], BLOCK=BLOCK
    )
