"""Logit controls in plain torch, a row at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from stretto.kernels.apply_controls.state import BANS, BIAS, IN_OUTPUT, PENALTIES, State


def banned(runs: list[int], output: list[int], min_tokens: int) -> Iterator[int]:
    """The ids that `State.bans` forbids after this output."""
    while runs[0] != 0:
        count, ids = runs[0], runs[1 : 1 + abs(runs[0])]
        if count < 0 and len(output) < min_tokens:
            yield from ids
        elif count > 0 and output[max(0, len(output) - count + 1) :] == ids[:-1]:
            yield ids[-1]
        runs = runs[1 + len(ids) :]


def penalise(row: torch.Tensor, slot: int, state: State) -> None:
    """Repetition, frequency and presence, in place; row: float32 [V]."""
    seen = state.seen[slot]
    counts = (seen // IN_OUTPUT).float()
    repetition = state.repetition[slot]
    weakened = torch.where(row > 0, row / repetition, row * repetition)
    row.copy_(torch.where(seen != 0, weakened, row))
    row -= state.frequency[slot] * counts
    row -= state.presence[slot] * (counts > 0)


def apply_controls(
    logits: torch.Tensor, rows: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor, state: State
) -> None:
    """See `stretto.kernels.apply_controls.apply_controls`."""
    for index, slot, position in zip(rows.tolist(), slots.tolist(), positions.tolist(), strict=True):
        row, kinds = logits[index], int(state.kinds[slot])
        if kinds & BIAS:
            row += state.bias[slot]
        if kinds & BANS:
            output = state.history[slot, int(state.prompt_lengths[slot]) : position].tolist()
            for token in banned(state.bans[slot].tolist(), output, int(state.min_tokens[slot])):
                if 0 <= token < len(row):
                    row[token] = -math.inf
        if kinds & PENALTIES:
            penalise(row, slot, state)
