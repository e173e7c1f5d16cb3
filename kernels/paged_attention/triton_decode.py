"""Attention of one row per sequence, split over the keys (Dao et al., 2023, "Flash-Decoding").

A sequence's keys are cut into splits of a fixed number of positions. Each split gives a partial result, and
`merge_kernel` adds those of a row up, in order. How many programs share the splits of a sequence is free, and
depends on the batch; what a split computes does not.
"""

from __future__ import annotations

import triton
import triton.language as tl

from stretto.kernels.paged_attention.triton_tile import TABLES, attend, find_cells

COUNTS = ["first_sequence", "max_splits", "sums_at"]


@triton.jit(do_not_specialize=[*COUNTS, "table_stride"], do_not_specialize_on_alignment=TABLES)
def decode_kernel(
    out: tl.tensor,
    scratch: tl.tensor,
    q: tl.tensor,
    k_cache: tl.tensor,
    v_cache: tl.tensor,
    block_tables: tl.tensor,
    query_starts: tl.tensor,
    kv_lengths: tl.tensor,
    k_scale: tl.tensor,
    v_scale: tl.tensor,
    factor: tl.tensor,
    first_sequence: tl.tensor,
    max_splits: tl.tensor,
    sums_at: tl.tensor,
    out_stride: tl.tensor,
    q_stride: tl.tensor,
    table_stride: tl.tensor,
    page_stride: tl.tensor,
    token_stride: tl.tensor,
    GROUP: tl.constexpr,
    GROUP_BLOCK: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM_BLOCK: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    WINDOW: tl.constexpr,
    SPLIT: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    """A program of the grid [Hk, sequences, workers] does every `workers`-th split of one KV head.

    scratch: of each split [sequences, Hq, max_splits] the weighted values, float32 [HEAD_DIM], and from
    sums_at on its largest score and sum of weights. A row of one split goes to out at once.
    """
    head, index = tl.program_id(0), tl.program_id(1)
    sequence = first_sequence + index
    token = tl.load(query_starts + sequence).to(tl.int64)
    rows = tl.load(query_starts + sequence + 1) - token
    length = tl.load(kv_lengths + sequence)
    first = tl.maximum(length - WINDOW, 0) if WINDOW else 0
    first_split = first // SPLIT
    splits = tl.where(rows == 1, tl.cdiv(length, SPLIT) - first_split, 0)

    member, d = tl.arange(0, GROUP_BLOCK), tl.arange(0, DIM_BLOCK)
    columns = (d < HEAD_DIM)[None, :]
    mine = (member < GROUP)[:, None] & columns
    in_token = (head * GROUP + member)[:, None] * HEAD_DIM + d[None, :]
    factor = factor * tl.load(k_scale + head) if k_scale is not None else factor
    in_cell = head * HEAD_DIM + d[None, :]
    table = block_tables + sequence.to(tl.int64) * table_stride
    for split in range(tl.program_id(2), splits, tl.num_programs(2)):
        query = tl.load(q + token * q_stride + in_token, mask=mine, other=0.0)
        largest = tl.full([GROUP_BLOCK], float("-inf"), tl.float32)
        total = tl.zeros([GROUP_BLOCK], tl.float32)
        acc = tl.zeros([GROUP_BLOCK, DIM_BLOCK], tl.float32)
        begin = (first_split + split) * SPLIT
        end = tl.minimum(begin + SPLIT, length)
        for start in range(tl.maximum(begin, first // TILE * TILE), end, TILE):
            position = start + tl.arange(0, TILE)
            held = (position >= first) & (position < end)
            cell = find_cells(table, position, held, page_stride, token_stride, PAGE_SIZE)
            at, there = cell[:, None] + in_cell, held[:, None] & columns
            seen = held[None, :]
            largest, total, acc = attend(
                query, k_cache + at, v_cache + at, there, seen, factor, largest, total, acc
            )
        if splits == 1:
            acc = acc / total[:, None]
            acc = acc * tl.load(v_scale + head) if v_scale is not None else acc
            tl.store(out + token * out_stride + in_token, acc.to(out.dtype.element_ty), mask=mine)
        else:
            row = (index * tl.num_programs(0) * GROUP + head * GROUP + member).to(tl.int64)
            place = row * max_splits + split
            tl.store(scratch + place[:, None] * HEAD_DIM + d[None, :], acc, mask=mine)
            sums = scratch + sums_at + place * 2
            tl.store(sums, largest, mask=member < GROUP)
            tl.store(sums + 1, total, mask=member < GROUP)


@triton.jit(do_not_specialize=COUNTS, do_not_specialize_on_alignment=TABLES[1:])
def merge_kernel(
    out: tl.tensor,
    scratch: tl.tensor,
    query_starts: tl.tensor,
    kv_lengths: tl.tensor,
    v_scale: tl.tensor,
    first_sequence: tl.tensor,
    max_splits: tl.tensor,
    sums_at: tl.tensor,
    out_stride: tl.tensor,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM_BLOCK: tl.constexpr,
    WINDOW: tl.constexpr,
    SPLIT: tl.constexpr,
    SPLITS: tl.constexpr,
) -> None:
    """A program of the grid [Hq, sequences] adds up the splits of one row and query head, SPLITS at once."""
    head, index = tl.program_id(0), tl.program_id(1)
    sequence = first_sequence + index
    token = tl.load(query_starts + sequence).to(tl.int64)
    rows = tl.load(query_starts + sequence + 1) - token
    length = tl.load(kv_lengths + sequence)
    first = tl.maximum(length - WINDOW, 0) if WINDOW else 0
    splits = tl.cdiv(length, SPLIT) - first // SPLIT
    if (rows == 1) & (splits > 1):
        d = tl.arange(0, DIM_BLOCK)
        columns = d < HEAD_DIM
        base = (index * tl.num_programs(0) + head).to(tl.int64) * max_splits
        largest, total = float("-inf"), 0.0
        acc = tl.zeros([DIM_BLOCK], tl.float32)
        for start in range(0, splits, SPLITS):
            split = start + tl.arange(0, SPLITS)
            held = split < splits
            place = base + split
            tops = tl.load(scratch + sums_at + place * 2, mask=held, other=float("-inf"))
            sums = tl.load(scratch + sums_at + place * 2 + 1, mask=held, other=0.0)
            parts = tl.load(
                scratch + place[:, None] * HEAD_DIM + d[None, :],
                mask=held[:, None] & columns[None, :],
                other=0.0,
            )
            higher = tl.maximum(largest, tl.max(tops, axis=0))
            weights, decay = tl.exp2(tops - higher), tl.exp2(largest - higher)
            acc = acc * decay + tl.sum(parts * weights[:, None], axis=0)
            total, largest = total * decay + tl.sum(sums * weights, axis=0), higher
        acc = acc / total
        acc = acc * tl.load(v_scale + head // GROUP) if v_scale is not None else acc
        to = out + token * out_stride + head * HEAD_DIM + d
        tl.store(to, acc.to(out.dtype.element_ty), mask=columns)
