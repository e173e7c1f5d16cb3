"""Logit controls on the GPU: biases and penalties by blocks of a row, then bans by rows.

The reference bans between the two. That is the same: neither penalty lifts a logit of -inf.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from stretto.kernels.apply_controls.state import BANS, BIAS, IN_OUTPUT, PENALTIES, State
from stretto.kernels.generation import choose

CONFIGS = {80: {"BLOCK": 1024, "num_warps": 4}}
IDS = 64
"""Ids of one run that are looked at together."""
_BIAS, _BANS, _PENALTIES, _IN_OUTPUT = (tl.constexpr(bit) for bit in (BIAS, BANS, PENALTIES, IN_OUTPUT))


@triton.jit
def adjust_kernel(
    logits: tl.tensor,
    rows: tl.tensor,
    slots: tl.tensor,
    kinds: tl.tensor,
    bias: tl.tensor,
    seen: tl.tensor,
    presence: tl.tensor,
    frequency: tl.tensor,
    repetition: tl.tensor,
    vocabulary: tl.tensor,
    stride: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    index, tokens = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    slot = tl.load(slots + index)
    kind = tl.load(kinds + slot, mask=slot >= 0, other=0)
    if kind & (_BIAS | _PENALTIES) == 0:
        return
    at, keep = logits + tl.load(rows + index) * stride + tokens, tokens < vocabulary
    logit = tl.load(at, mask=keep, other=0.0)
    if kind & _BIAS:
        logit += tl.load(bias + slot * vocabulary + tokens, mask=keep, other=0.0)
    if kind & _PENALTIES:
        found = tl.load(seen + slot * vocabulary + tokens, mask=keep, other=0)
        times, strength = (found // _IN_OUTPUT).to(tl.float32), tl.load(repetition + slot)
        weakened = tl.where(logit > 0, tl.div_rn(logit, strength + tl.zeros_like(logit)), logit * strength)
        logit = tl.where(found != 0, weakened, logit)
        logit -= tl.load(frequency + slot) * times
        logit = tl.where(times > 0, logit - tl.load(presence + slot), logit)
    tl.store(at, logit, mask=keep)


@triton.jit
def _differences(ids: tl.tensor, history: tl.tensor, count: tl.tensor, IDS: tl.constexpr) -> Any:
    """How many of the first ids are not those of the history."""
    found = 0
    for first in range(0, count, IDS):
        at = first + tl.arange(0, IDS)
        keep = at < count
        same = tl.load(ids + at, mask=keep, other=0) == tl.load(history + at, mask=keep, other=0)
        found += tl.sum((~same & keep).to(tl.int32))
    return found


@triton.jit
def _forbid(
    row: tl.tensor, ids: tl.tensor, count: tl.tensor, vocabulary: tl.tensor, IDS: tl.constexpr
) -> None:
    for first in range(0, count, IDS):
        at = first + tl.arange(0, IDS)
        token = tl.load(ids + at, mask=at < count, other=-1)
        tl.store(row + token, float("-inf"), mask=(token >= 0) & (token < vocabulary))


@triton.jit
def ban_kernel(
    logits: tl.tensor,
    rows: tl.tensor,
    slots: tl.tensor,
    positions: tl.tensor,
    kinds: tl.tensor,
    bans: tl.tensor,
    history: tl.tensor,
    prompt_lengths: tl.tensor,
    min_tokens: tl.tensor,
    vocabulary: tl.tensor,
    stride: tl.tensor,
    bans_width: tl.tensor,
    history_width: tl.tensor,
    IDS: tl.constexpr,
) -> None:
    index = tl.program_id(0)
    slot = tl.load(slots + index)
    kind = tl.load(kinds + slot, mask=slot >= 0, other=0)
    if kind & _BANS == 0:
        return
    row, position = logits + tl.load(rows + index) * stride, tl.load(positions + index)
    output, least = position - tl.load(prompt_lengths + slot), tl.load(min_tokens + slot)
    end, at = history + slot * history_width + position, bans + slot * bans_width
    count = tl.load(at)
    while count != 0:
        ids, size = at + 1, tl.abs(count)
        if count < 0:
            if output < least:
                _forbid(row, ids, size, vocabulary, IDS)
        elif size <= output + 1:
            same = _differences(ids, end - (size - 1), size - 1, IDS) == 0
            _forbid(row, ids + size - 1, same.to(tl.int32), vocabulary, IDS)
        at = ids + size
        count = tl.load(at)


def apply_controls(
    logits: torch.Tensor, rows: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor, state: State
) -> None:
    """See `stretto.kernels.apply_controls.apply_controls`."""
    config = choose(CONFIGS)
    vocabulary, stride = logits.shape[1], logits.stride(0)
    adjust_kernel[(len(rows), triton.cdiv(vocabulary, config["BLOCK"]))](
        logits,
        rows,
        slots,
        state.kinds,
        state.bias,
        state.seen,
        state.presence,
        state.frequency,
        state.repetition,
        vocabulary,
        stride,
        enable_fp_fusion=False,
        **config,
    )
    ban_kernel[(len(rows),)](
        logits,
        rows,
        slots,
        positions,
        state.kinds,
        state.bans,
        state.history,
        state.prompt_lengths,
        state.min_tokens,
        vocabulary,
        stride,
        state.bans.shape[1],
        state.history.shape[1],
        IDS=IDS,
        num_warps=1,
    )
