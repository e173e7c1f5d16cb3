"""What Triton kernels do with rows of logits: the largest, and floats that are compared as integers.

A row is cut into splits, a program each. No result depends on the size of a split: a maximum and a sum of
integers are the same in any order.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

_LOW = tl.constexpr(0x7FFFFFFF)
NOTHING = tl.constexpr(-(2**63))
"""Below what `pack` makes."""


@triton.jit
def pack(values: tl.tensor, indices: tl.tensor) -> Any:
    """int64, ordered like float32 `values` and, among equals, by falling index; 0 and -0 are equal."""
    bits = tl.where(values == 0, 0.0, values).to(tl.int32, bitcast=True)
    ordered = bits ^ ((bits >> 31) & _LOW)
    return (ordered.to(tl.int64) << 32) | (indices ^ _LOW).to(tl.int64)


@triton.jit
def packed_value(packed: tl.tensor) -> Any:
    """The float32 that went into `pack`."""
    ordered = (packed >> 32).to(tl.int32)
    return (ordered ^ ((ordered >> 31) & _LOW)).to(tl.float32, bitcast=True)


@triton.jit
def packed_index(packed: tl.tensor) -> Any:
    """The index that went into `pack`, int32."""
    return packed.to(tl.int32) ^ _LOW


@triton.jit
def largest_kernel(
    logits: tl.tensor, partial: tl.tensor, vocabulary: tl.tensor, stride: tl.tensor, SPLIT: tl.constexpr
) -> None:
    """partial: float32 [rows, splits], the largest logit of each split, +inf where there is a NaN."""
    row, split = tl.program_id(0).to(tl.int64), tl.program_id(1)
    tokens = split * SPLIT + tl.arange(0, SPLIT)
    logit = tl.load(logits + row * stride + tokens, mask=tokens < vocabulary, other=float("-inf"))
    most = tl.max(tl.where(logit == logit, logit, float("inf")))
    tl.store(partial + row * tl.num_programs(1) + split, most)


def largest(logits: torch.Tensor, split: int) -> torch.Tensor:
    """For `row_largest`: float32 [rows, splits]. logits: [rows, V], those of a row side by side."""
    rows, vocabulary = logits.shape
    grid = (rows, triton.cdiv(vocabulary, split))
    partial = logits.new_empty(grid)
    largest_kernel[grid](logits, partial, vocabulary, logits.stride(0), SPLIT=split)
    return partial


@triton.jit
def row_largest(partial: tl.tensor, row: tl.tensor, splits: tl.tensor, SPLITS: tl.constexpr) -> Any:
    """The largest logit of a row; not finite where the row has no distribution. SPLITS: a power of 2."""
    index = tl.arange(0, SPLITS)
    return tl.max(tl.load(partial + row * splits + index, mask=index < splits, other=float("-inf")))


@triton.jit
def finite(x: tl.tensor) -> Any:
    """Whether a float32 is finite."""
    return tl.abs(x) < float("inf")
