"""Top-k, top-p and min-p as one depth, exactly and without sorting, in Triton.

Depths fall into buckets of 1/32. All programs of a row add their tokens and masses to the row's buckets; the
sums are integers, so their order is free. Then one program per row finds the bucket in which the filter ends,
gathers its tokens, few as a rule, and bisects their bit patterns.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from stretto.kernels.rows_triton import finite, row_largest
from stretto.kernels.sample.noise_triton import exp
from stretto.kernels.sample.state import State

BUCKETS = 2048
_BUCKETS, _LAST = tl.constexpr(BUCKETS), tl.constexpr(BUCKETS - 1)
_PER_UNIT, _WIDTH = tl.constexpr(32.0), tl.constexpr(1 / 32)
_INFINITY = tl.constexpr(0x7F800000)
_UNIT = tl.constexpr(float(1 << 40))


@triton.jit
def mass(depth: tl.tensor) -> Any:
    """In whole units, int64."""
    return (exp(0.0 - tl.minimum(depth, 80.0)) * _UNIT).to(tl.int64)


@triton.jit
def bucket(depth: tl.tensor) -> Any:
    """The bucket of a depth; the last has all from 2047/32 on."""
    return tl.minimum(depth * _PER_UNIT, 2047.0).to(tl.int32)


@triton.jit
def _first_key(bucket: tl.tensor) -> Any:
    """The bits of a bucket's smallest depth; those of infinity for the one after the last."""
    key = (bucket.to(tl.float32) * _WIDTH).to(tl.int32, bitcast=True)
    return tl.where(bucket > _LAST, _INFINITY, key)


@triton.jit
def find_bucket(sums: tl.tensor, target: tl.tensor) -> Any:
    """The first bucket with which the sums, int64, reach the target, float64; and the sum before it."""
    below = tl.cumsum(sums, 0).to(tl.float64) < target
    return tl.minimum(tl.sum(below.to(tl.int32)), _LAST), tl.sum(tl.where(below, sums, 0))


@triton.jit
def gather(
    logits: tl.tensor,
    top: tl.tensor,
    heat: tl.tensor,
    wanted: tl.tensor,
    kept: tl.tensor,
    vocabulary: tl.tensor,
    BLOCK: tl.constexpr,
) -> Any:
    """Write the depths of a bucket's tokens to `kept` and return how many there are."""
    count = 0
    for first in range(0, vocabulary, BLOCK):
        tokens = first + tl.arange(0, BLOCK)
        logit = tl.load(logits + tokens, mask=tokens < vocabulary, other=0.0)
        depth = tl.div_rn(top - logit, heat + tl.zeros_like(logit))
        inside = ((tokens < vocabulary) & (bucket(depth) == wanted)).to(tl.int32)
        found = tl.sum(inside)
        if found > 0:
            tl.store(kept + count + tl.cumsum(inside, 0) - 1, depth, mask=inside != 0)
        count += found
    tl.debug_barrier()  # other threads read what was stored
    return count


@triton.jit
def weigh(kept: tl.tensor, count: tl.tensor, key: tl.tensor, MASS: tl.constexpr, BLOCK: tl.constexpr) -> Any:
    """The mass, or the number, of the gathered tokens with keys up to `key`; int64."""
    total = tl.zeros((), tl.int64)
    for first in range(0, count, BLOCK):
        index = first + tl.arange(0, BLOCK)
        depth = tl.load(kept + index, mask=index < count, other=float("inf"))
        near = (index < count) & (depth.to(tl.int32, bitcast=True) <= key)
        weights = mass(depth) if MASS else tl.full((BLOCK,), 1, tl.int64)
        total += tl.sum(tl.where(near, weights, 0))
    return total


@triton.jit
def bisect(
    kept: tl.tensor,
    count: tl.tensor,
    wanted: tl.tensor,
    before: tl.tensor,
    target: tl.tensor,
    MASS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> Any:
    """The smallest depth of a bucket down to which tokens reach the target."""
    low, high = _first_key(wanted), _first_key(wanted + 1)
    while low < high:
        middle = low + (high - low) // 2
        if (before + weigh(kept, count, middle, MASS, BLOCK)).to(tl.float64) < target:
            low = middle + 1
        else:
            high = middle
    return low.to(tl.float32, bitcast=True)


@triton.jit
def weigh_kernel(
    logits: tl.tensor,
    partial: tl.tensor,
    slots: tl.tensor,
    temperature: tl.tensor,
    top_k: tl.tensor,
    top_p: tl.tensor,
    counts: tl.tensor,
    masses: tl.tensor,
    vocabulary: tl.tensor,
    stride: tl.tensor,
    SPLITS: tl.constexpr,
    SPLIT: tl.constexpr,
) -> None:
    """Add the tokens of a split to the row's buckets, int64 [rows, BUCKETS], as far as filters need them."""
    row, split = tl.program_id(0).to(tl.int64), tl.program_id(1)
    slot = tl.load(slots + row)
    heat, k, p = tl.load(temperature + slot), tl.load(top_k + slot), tl.load(top_p + slot)
    by_count = (k > 0) & (k < vocabulary)
    if (heat == 0) | (~by_count & (p >= 1)):
        return
    top = row_largest(partial, row, tl.num_programs(1), SPLITS)
    if ~finite(top):
        return
    tokens = split * SPLIT + tl.arange(0, SPLIT)
    keep = tokens < vocabulary
    logit = tl.load(logits + row * stride + tokens, mask=keep, other=0.0)
    depth = tl.div_rn(top - logit, heat + tl.zeros_like(logit))
    at = row * _BUCKETS + bucket(depth)
    if by_count:
        tl.atomic_add(counts + at, tl.full((SPLIT,), 1, tl.int64), mask=keep, sem="relaxed")
    if p < 1:
        units = mass(depth)
        tl.atomic_add(masses + at, units, mask=keep & (units > 0), sem="relaxed")


@triton.jit
def limit_kernel(
    logits: tl.tensor,
    partial: tl.tensor,
    slots: tl.tensor,
    temperature: tl.tensor,
    top_k: tl.tensor,
    top_p: tl.tensor,
    min_p: tl.tensor,
    counts: tl.tensor,
    masses: tl.tensor,
    scratch: tl.tensor,
    limits: tl.tensor,
    vocabulary: tl.tensor,
    stride: tl.tensor,
    splits: tl.tensor,
    SPLITS: tl.constexpr,
    BLOCK: tl.constexpr,
    NEAR: tl.constexpr,
) -> None:
    """limits: float32 [rows], the depth down to which the three filters keep tokens."""
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + row)
    heat, k, p = tl.load(temperature + slot), tl.load(top_k + slot), tl.load(top_p + slot)
    m = tl.load(min_p + slot)
    top = row_largest(partial, row, splits, SPLITS)
    if (heat == 0) | ~finite(top):
        return
    logits += row * stride
    kept, index = scratch + row * vocabulary, tl.arange(0, _BUCKETS)
    limit, last = tl.full((), float("inf"), tl.float32), tl.full((), _LAST, tl.int32)
    by_count, count = (k > 0) & (k < vocabulary), 0
    if by_count:
        target = k.to(tl.float64)
        last, before = find_bucket(tl.load(counts + row * _BUCKETS + index), target)
        count = gather(logits, top, heat, last, kept, vocabulary, BLOCK)
        limit = bisect(kept, count, last, before, target, False, NEAR)
    if p < 1:
        sums = tl.load(masses + row * _BUCKETS + index)
        if by_count:
            part = weigh(kept, count, limit.to(tl.int32, bitcast=True), True, NEAR)
            sums = tl.where(index < last, sums, tl.where(index == last, part, 0))
        target = p.to(tl.float64) * tl.sum(sums).to(tl.float64)
        last, before = find_bucket(sums, target)
        tl.debug_barrier()  # `kept` is written again
        count = gather(logits, top, heat, last, kept, vocabulary, BLOCK)
        limit = bisect(kept, count, last, before, target, True, NEAR)
    if m > 0:
        limit = tl.minimum(limit, (0.0 - tl.log(m.to(tl.float64))).to(tl.float32))
    tl.store(limits + row, limit)


def find_limits(
    logits: torch.Tensor,
    partial: torch.Tensor,
    slots: torch.Tensor,
    state: State,
    config: dict[str, int],
) -> torch.Tensor:
    """float32 [rows]: the depth down to which a row's filters keep tokens; anything for a greedy row.

    partial: of `rows_triton.largest`; the others and `config` are as in `sample`.
    """
    (rows, vocabulary), splits = logits.shape, partial.shape[1]
    limits, scratch = logits.new_empty(rows), logits.new_empty(rows, vocabulary)
    buckets = torch.zeros(2, rows, BUCKETS, dtype=torch.int64, device=logits.device)
    filters, shape = (slots, state.temperature, state.top_k, state.top_p), (vocabulary, logits.stride(0))
    constants = {"SPLITS": triton.next_power_of_2(splits), "enable_fp_fusion": False}
    weigh_kernel[(rows, splits)](
        logits, partial, *filters, *buckets, *shape, SPLIT=config["split"], **constants
    )
    limit_kernel[(rows,)](
        logits,
        partial,
        *filters,
        state.min_p,
        *buckets,
        scratch,
        limits,
        *shape,
        splits,
        BLOCK=config["block"],
        NEAR=config["near"],
        num_warps=16,
        **constants,
    )
    return limits
