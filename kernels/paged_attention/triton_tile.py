"""What the attention kernels for GPUs share: a tile of keys and values, found through the block table.

A tile covers fixed absolute positions, and what it adds to a row is a function of the row's query and of the
tile alone: other rows of the program, and tiles that the row does not see, leave its bits as they were.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

TABLES = ["block_tables", "query_starts", "kv_lengths"]
"""Arguments whose alignment may be another in every step: to compile for it would stop a request for a
second. Nor are counts compiled for, that change with the batch.
"""


@triton.jit
def find_cells(
    table: tl.tensor,
    position: tl.tensor,
    held: tl.tensor,
    page_stride: tl.tensor,
    token_stride: tl.tensor,
    PAGE_SIZE: tl.constexpr,
) -> Any:
    """Where the cache has the positions of a sequence, in elements; entries not held are never looked up."""
    page = tl.load(table + position // PAGE_SIZE, mask=held, other=0).to(tl.int64)
    return page * page_stride + (position % PAGE_SIZE) * token_stride


@triton.jit
def attend(
    q: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    held: tl.tensor,
    visible: tl.tensor,
    factor: tl.tensor,
    largest: tl.tensor,
    total: tl.tensor,
    acc: tl.tensor,
) -> Any:
    """One step of the online softmax (Milakov and Gimelshein, 2018, arXiv:1805.02867), to base 2.

    q: [M, D]. keys, values: pointers [N, D], loaded where `held`, [N, D]. visible: [M, N] or [1, N], which
    rows see which keys. factor: the softmax's scale, times log2(e). largest, total: float32 [M], and acc:
    float32 [M, D], of the tiles before; returns the new ones.
    """
    k = tl.load(keys, mask=held, other=0.0).to(q.dtype)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * factor
    scores = tl.where(visible, scores, float("-inf"))
    higher = tl.maximum(largest, tl.max(scores, axis=1))
    base = tl.where(higher == float("-inf"), 0.0, higher)  # a row may see nothing yet
    decay = tl.exp2(largest - base)
    weights = tl.exp2(scores - base[:, None])
    v = tl.load(values, mask=held, other=0.0).to(q.dtype)
    acc = tl.dot(weights.to(q.dtype), v, acc * decay[:, None], input_precision="ieee")
    return higher, total * decay + tl.sum(weights, axis=1), acc


@triton.jit
def join(
    top: tl.tensor,
    mass: tl.tensor,
    sums: tl.tensor,
    largest: tl.tensor,
    total: tl.tensor,
    acc: tl.tensor,
) -> Any:
    """Add what `attend` found in a split, the last three, to the sum of the splits before.

    Shapes are as in `attend`. Each rounding is spelled out, so that every kernel gets the same bits: left to
    itself, a compiler contracts one product or the other.
    """
    higher = tl.maximum(top, largest)
    base = tl.where(higher == float("-inf"), 0.0, higher)
    decay, weight = tl.exp2(top - base), tl.exp2(largest - base)
    mass = tl.fma(mass, decay, total * weight)
    decays, weights = decay[:, None] + tl.zeros_like(acc), weight[:, None]
    return higher, mass, tl.fma(sums, decays, acc * weights)
