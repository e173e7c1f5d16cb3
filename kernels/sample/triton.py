"""Sampling on the GPU, in five launches: largest logits, buckets, limits, scores by split, the winners.

A row's vocabulary is cut into splits, so that one row alone keeps many multiprocessors at work. Rows without
filters pass over the second and the third launch.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from stretto.kernels.generation import choose
from stretto.kernels.rows_triton import finite, largest, pack, packed_index, row_largest
from stretto.kernels.sample.filters_triton import find_limits
from stretto.kernels.sample.noise_triton import gumbel, words
from stretto.kernels.sample.state import State

CONFIGS = {80: {"split": 2048, "block": 4096, "near": 2048}}
"""`split`: tokens of a program of 4 warps, 16 a thread. `block`: tokens that a limit's 16 warps look through
together, and `near`: of those that are close to it; 128 registers a thread are enough."""


@triton.jit
def draw_kernel(
    logits: tl.tensor,
    partial: tl.tensor,
    slots: tl.tensor,
    positions: tl.tensor,
    temperature: tl.tensor,
    seed: tl.tensor,
    limits: tl.tensor,
    best: tl.tensor,
    vocabulary: tl.tensor,
    stride: tl.tensor,
    SPLITS: tl.constexpr,
    SPLIT: tl.constexpr,
) -> None:
    """best: int64 [rows, splits], the packed winner of each split."""
    row, split, splits = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    tokens = split * SPLIT + tl.arange(0, SPLIT)
    keep = tokens < vocabulary
    score = tl.load(logits + row * stride + tokens, mask=keep, other=float("-inf"))
    top, heat = row_largest(partial, row, splits, SPLITS), tl.load(temperature + tl.load(slots + row))
    if heat != 0:
        depth = tl.div_rn(top - score, heat + tl.zeros_like(score))
        near = keep & (depth <= tl.load(limits + row))
        score = tl.full((SPLIT,), float("-inf"), tl.float32)
        if tl.sum(near.to(tl.int32)) > 0:
            key, position = tl.load(seed + tl.load(slots + row)), tl.load(positions + row)
            bits = words(key, position, split * SPLIT, SPLIT)
            score = tl.where(near, gumbel(bits) - depth, float("-inf"))
    tl.store(best + row * splits + split, tl.max(pack(score, tokens)))


@triton.jit
def win_kernel(
    partial: tl.tensor,
    best: tl.tensor,
    slots: tl.tensor,
    last_token: tl.tensor,
    out: tl.tensor,
    splits: tl.tensor,
    SPLITS: tl.constexpr,
) -> None:
    row, index = tl.program_id(0).to(tl.int64), tl.arange(0, SPLITS)
    winners = tl.load(best + row * splits + index, mask=index < splits, other=-(2**63))
    token = packed_index(tl.max(winners))
    token = tl.where(finite(row_largest(partial, row, splits, SPLITS)), token, -1)
    tl.store(out + row, token)
    tl.store(last_token + tl.load(slots + row), tl.maximum(token, 0))


def sample(
    logits: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor, state: State, out: torch.Tensor
) -> None:
    """See `stretto.kernels.sample.sample`. Logits of a row lie side by side, the other tensors whole."""
    config = choose(CONFIGS)
    rows, vocabulary = logits.shape
    partial = largest(logits, config["split"])
    limits = find_limits(logits, partial, slots, state, config)
    best = torch.empty(partial.shape, dtype=torch.int64, device=logits.device)
    splits = partial.shape[1]
    padded = triton.next_power_of_2(splits)
    draw_kernel[(rows, splits)](
        logits,
        partial,
        slots,
        positions,
        state.temperature,
        state.seed,
        limits,
        best,
        vocabulary,
        logits.stride(0),
        SPLITS=padded,
        SPLIT=config["split"],
        enable_fp_fusion=False,
    )
    win_kernel[(rows,)](partial, best, slots, state.last_token, out, splits, SPLITS=padded, num_warps=1)
