"""Log-probabilities on the GPU: one pass by splits of a row, then one program per row puts them together.

The sum has the reference's order: every lane of a block of 1024 tokens is added up by one thread.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from stretto.kernels.generation import choose
from stretto.kernels.logprobs.reference import BLOCK, LANES
from stretto.kernels.rows_triton import (
    NOTHING,
    finite,
    largest,
    pack,
    packed_index,
    packed_value,
    row_largest,
)
from stretto.kernels.sample.noise_triton import exp

CONFIGS = {80: {"split": 4096}}
"""Tokens of a program: 4 blocks, whose lanes are half of its threads."""
COLUMNS = ["tokens", "values", "ranks", "top_ids", "tops"]
"""Parts of a packed buffer: where they begin depends on the step, and must not ask for other code."""
_BLOCK, _LANES = tl.constexpr(BLOCK), tl.constexpr(LANES)


@triton.jit
def _fold(sums: tl.tensor, HALF: tl.constexpr) -> Any:
    """Left half plus right half of each row."""
    pairs = tl.permute(tl.reshape(sums, (sums.shape[0], 2, HALF)), (0, 2, 1))
    left, right = tl.split(pairs)
    return left + right


@triton.jit
def _block_sums(
    row: tl.tensor, top: tl.tensor, first: tl.tensor, vocabulary: tl.tensor, SPLIT: tl.constexpr
) -> Any:
    """exp(logit - top), summed over each block from token `first` on; float32 [blocks]."""
    blocks = first + tl.arange(0, SPLIT // _BLOCK)[:, None] * _BLOCK
    lanes = blocks + tl.arange(0, _LANES)[None, :]
    sums = tl.zeros((SPLIT // _BLOCK, _LANES), tl.float32)
    for group in range(0, _BLOCK, 8 * _LANES):
        for part in tl.static_range(8):  # eight loads on their way at one time
            tokens = lanes + group + part * _LANES
            depth = tl.load(row + tokens, mask=tokens < vocabulary, other=float("-inf")) - top
            sums += exp(tl.maximum(depth, -87.0))
    return tl.reshape(_fold(_fold(_fold(_fold(sums, 8), 4), 2), 1), (SPLIT // _BLOCK,))


@triton.jit(do_not_specialize=["width"], do_not_specialize_on_alignment=["tokens"])
def measure_kernel(
    logits: tl.tensor,
    partial: tl.tensor,
    tokens: tl.tensor,
    sums: tl.tensor,
    above: tl.tensor,
    candidates: tl.tensor,
    vocabulary: tl.tensor,
    stride: tl.tensor,
    blocks: tl.tensor,
    width: tl.tensor,
    SPLITS: tl.constexpr,
    SPLIT: tl.constexpr,
) -> None:
    """sums: float32 [rows, blocks]; above: int32 [rows, splits]; candidates: int64 [rows, splits, width]."""
    row, split, splits = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    token, top = tl.load(tokens + row), row_largest(partial, row, splits, SPLITS)
    if (token < 0) | ~finite(top):
        return
    logits += row * stride
    index = split * (SPLIT // _BLOCK) + tl.arange(0, SPLIT // _BLOCK)
    parts = _block_sums(logits, top, split * SPLIT, vocabulary, SPLIT)
    tl.store(sums + row * blocks + index, parts, mask=index < blocks)
    ids = split * SPLIT + tl.arange(0, SPLIT)
    keep = ids < vocabulary
    logit = tl.load(logits + ids, mask=keep, other=float("-inf"))
    more = tl.sum((logit > tl.load(logits + token)).to(tl.int32))
    tl.store(above + row * splits + split, more)
    left = tl.where(keep, pack(logit, ids), NOTHING)
    candidates += (row * splits + split) * width
    for place in range(width):
        best = tl.max(left)
        tl.store(candidates + place, best)
        left = tl.where(left == best, NOTHING, left)


@triton.jit(do_not_specialize=["width"], do_not_specialize_on_alignment=COLUMNS)
def report_kernel(
    logits: tl.tensor,
    partial: tl.tensor,
    tokens: tl.tensor,
    sums: tl.tensor,
    above: tl.tensor,
    candidates: tl.tensor,
    values: tl.tensor,
    ranks: tl.tensor,
    top_ids: tl.tensor,
    tops: tl.tensor,
    stride: tl.tensor,
    blocks: tl.tensor,
    splits: tl.tensor,
    width: tl.tensor,
    SPLITS: tl.constexpr,
    BLOCKS: tl.constexpr,
    CANDIDATES: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    token, top = tl.load(tokens + row), row_largest(partial, row, splits, SPLITS)
    good = (token >= 0) & finite(top)
    blocks, splits = tl.where(good, blocks, 0), tl.where(good, splits, 0)
    index = tl.arange(0, BLOCKS)
    parts = tl.load(sums + row * blocks + index, mask=index < blocks, other=0.0)
    total, nan = tl.log(tl.sum(parts.to(tl.float64))), float("nan")
    chosen = tl.load(logits + row * stride + token, mask=good, other=0.0)
    value = ((chosen.to(tl.float64) - top.to(tl.float64)) - total).to(tl.float32)
    tl.store(values + row, tl.where(good, value, nan))
    index = tl.arange(0, SPLITS)
    more = tl.sum(tl.load(above + row * splits + index, mask=index < splits, other=0))
    tl.store(ranks + row, tl.where(good, more + 1, 0))
    index = tl.arange(0, CANDIDATES)
    keep = index < splits * width
    left = tl.load(candidates + row * splits * width + index, mask=keep, other=NOTHING)
    for place in range(width):
        best = tl.max(left)
        value = ((packed_value(best).to(tl.float64) - top.to(tl.float64)) - total).to(tl.float32)
        tl.store(tops + row * width + place, tl.where(good, value, nan))
        tl.store(top_ids + row * width + place, tl.where(good, packed_index(best), -1))
        left = tl.where(left == best, NOTHING, left)


def logprobs(
    logits: torch.Tensor,
    tokens: torch.Tensor,
    values: torch.Tensor,
    ranks: torch.Tensor,
    top_ids: torch.Tensor,
    top: torch.Tensor,
) -> None:
    """See `stretto.kernels.logprobs.logprobs`. Logits of a row lie side by side, the other tensors whole."""
    split = choose(CONFIGS)["split"]
    partial = largest(logits, split)
    (rows, splits), vocabulary, width = partial.shape, logits.shape[1], top.shape[1]
    blocks, stride = triton.cdiv(vocabulary, BLOCK), logits.stride(0)
    sums, above = logits.new_empty(rows, blocks), tokens.new_empty(rows, splits)
    candidates = torch.empty(rows, splits, width, dtype=torch.int64, device=logits.device)
    between = logits, partial, tokens, sums, above, candidates
    constants = {"SPLITS": triton.next_power_of_2(splits), "enable_fp_fusion": False}
    measure_kernel[(rows, splits)](*between, vocabulary, stride, blocks, width, SPLIT=split, **constants)
    report_kernel[(rows,)](
        *between,
        values,
        ranks,
        top_ids,
        top,
        stride,
        blocks,
        splits,
        width,
        BLOCKS=triton.next_power_of_2(blocks),
        CANDIDATES=triton.next_power_of_2(splits) * max(32, triton.next_power_of_2(width)),
        **constants,
    )
