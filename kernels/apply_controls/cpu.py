"""Logit controls on the CPU: a controlled row is a unit of work."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from stretto.kernels import simd
from stretto.kernels.apply_controls.state import BANS, BIAS, PENALTIES, State
from stretto.kernels.pool import arguments, claim, floats, int32s, int64s, kernel, unpack

_Args = arguments(
    "logits rows slots positions kinds bias bans seen history prompt_lengths min_tokens presence frequency"
    " repetition count vocabulary stride bans_width history_width"
)
_ZERO, _INF = np.float32(0), np.float32(np.inf)


@simd.device()
def _add(logits: Any, start: int, bias: Any, bias_start: int, count: int) -> None:
    for i in range(0, count, simd.LANES):
        n = min(simd.LANES, count - i)
        biased = simd.add(simd.load_first(logits, start + i, n), simd.load_first(bias, bias_start + i, n))
        simd.store_first(logits, start + i, biased, n)


@simd.device()
def _ends_with(history: Any, end: int, ids: Any, first: int, count: int) -> bool:
    """Whether the `count` tokens before history[end] are those from ids[first] on."""
    same = 0
    while same < count and history[end - count + same] == ids[first + same]:
        same += 1
    return same == count


@simd.device()
def _forbid(logits: Any, start: int, token: int, size: int) -> None:
    if 0 <= token < size:
        logits[start + token] = -_INF


@simd.device()
def _ban(
    logits: Any, start: int, size: int, bans: Any, at: Any, history: Any, end: int, output: int, least: int
) -> None:
    """output: how many tokens have come, the last of them before history[end]."""
    while bans[at] != 0:
        count = np.int64(bans[at])
        if count < 0 and output < least:
            for i in range(at + 1, at + 1 - count):
                _forbid(logits, start, bans[i], size)
        elif 0 < count <= output + 1 and _ends_with(history, end, bans, at + 1, count - 1):
            _forbid(logits, start, bans[at + count], size)
        at += 1 + abs(count)


@simd.device()
def _penalise(
    logits: Any,
    start: int,
    seen: Any,
    seen_start: int,
    count: int,
    repetition: Any,
    frequency: Any,
    presence: Any,
) -> None:
    for i in range(count):
        found = seen[seen_start + i]
        if found != 0:
            logit, times = logits[start + i], np.float32(found >> 1)
            logit = logit / repetition if logit > _ZERO else logit * repetition
            logit -= frequency * times
            logits[start + i] = logit - presence if times > _ZERO else logit


@kernel(_Args)
def apply_controls_kernel(pointer: Any) -> None:
    a = unpack(pointer)
    logits, rows, slots, positions = floats(a.logits), int64s(a.rows), int64s(a.slots), int64s(a.positions)
    bias, bans, seen, history = floats(a.bias), int32s(a.bans), int32s(a.seen), int32s(a.history)
    kinds, prompt_lengths, min_tokens = int32s(a.kinds), int32s(a.prompt_lengths), int32s(a.min_tokens)
    presence, frequency, repetition = floats(a.presence), floats(a.frequency), floats(a.repetition)
    index = claim(pointer)
    while index < a.count:
        start, slot = rows[index] * a.stride, slots[index]
        own = slot * a.vocabulary
        if kinds[slot] & BIAS:
            _add(logits, start, bias, own, a.vocabulary)
        if kinds[slot] & BANS:
            output, end = positions[index] - prompt_lengths[slot], slot * a.history_width + positions[index]
            least, runs = np.int64(min_tokens[slot]), slot * a.bans_width
            _ban(logits, start, a.vocabulary, bans, runs, history, end, output, least)
        if kinds[slot] & PENALTIES:
            strength = repetition[slot], frequency[slot], presence[slot]
            _penalise(logits, start, seen, own, a.vocabulary, *strength)
        index = claim(pointer)


def fits(logits: torch.Tensor, state: State) -> bool:
    """Whether this kernel handles these tensors: float32 on the CPU, logits of a row side by side."""
    return (
        logits.is_cpu
        and logits.dtype is torch.float32
        and logits.stride(-1) == 1
        and all(part.is_contiguous() for part in state)
    )


def apply_controls(
    logits: torch.Tensor, rows: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor, state: State
) -> None:
    """See `stretto.kernels.apply_controls.apply_controls`."""
    apply_controls_kernel(
        1 if len(rows) == 1 else torch.get_num_threads(),
        logits.data_ptr(),
        rows.data_ptr(),
        slots.data_ptr(),
        positions.data_ptr(),
        *(part.data_ptr() for part in state),
        len(rows),
        logits.shape[1],
        logits.stride(0),
        state.bans.shape[1],
        state.history.shape[1],
    )
