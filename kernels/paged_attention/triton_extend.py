"""Attention of prompt chunks: many rows of many sequences in one launch, keys in tiles (Dao, 2023,
arXiv:2307.08691), read through the block table.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from stretto.kernels.paged_attention.triton_tile import TABLES, attend, find_cells


@triton.jit
def _find_sequence(
    query_starts: tl.tensor, sequences: tl.tensor, block: tl.tensor, ROWS: tl.constexpr
) -> Any:
    """The sequence of a block of rows, and its first block.

    Sequence b has the blocks from query_starts[b] // ROWS + b on: the last may be unused. So blocks are dealt
    out with no more than the number of rows and sequences known to the host.
    """
    low, high = sequences * 0, sequences
    while low < high:
        middle = (low + high) // 2
        if tl.load(query_starts + middle) // ROWS + middle <= block:
            low = middle + 1
        else:
            high = middle
    return low - 1, tl.load(query_starts + low - 1) // ROWS + low - 1


@triton.jit(do_not_specialize=["sequences", "table_stride"], do_not_specialize_on_alignment=TABLES)
def extend_kernel(
    out: tl.tensor,
    q: tl.tensor,
    k_cache: tl.tensor,
    v_cache: tl.tensor,
    block_tables: tl.tensor,
    query_starts: tl.tensor,
    kv_lengths: tl.tensor,
    k_scale: tl.tensor,
    v_scale: tl.tensor,
    factor: tl.tensor,
    sequences: tl.tensor,
    out_stride: tl.tensor,
    q_stride: tl.tensor,
    table_stride: tl.tensor,
    page_stride: tl.tensor,
    token_stride: tl.tensor,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM_BLOCK: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    WINDOW: tl.constexpr,
    ROW_BLOCK: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    """A program of the grid [blocks, Hk] does the query heads of one KV head for ROW_BLOCK // GROUP rows.

    Sequences of one row are left to the decode kernel. Late blocks, which see the most keys, come first.
    """
    ROWS: tl.constexpr = ROW_BLOCK // GROUP
    block, head = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1)
    sequence, first_block = _find_sequence(query_starts, sequences, block, ROWS)
    token = tl.load(query_starts + sequence)
    rows = tl.load(query_starts + sequence + 1) - token
    first_row = (block - first_block) * ROWS
    if (rows > 1) & (first_row < rows):
        before = tl.load(kv_lengths + sequence) - rows
        lane, d = tl.arange(0, ROW_BLOCK), tl.arange(0, DIM_BLOCK)
        row = first_row + lane // GROUP
        columns = (d < HEAD_DIM)[None, :]
        mine = ((row < rows) & (lane < ROWS * GROUP))[:, None] & columns
        in_token = (head * GROUP + lane % GROUP)[:, None] * HEAD_DIM + d[None, :]
        at = (token + row).to(tl.int64)[:, None]
        query = tl.load(q + at * q_stride + in_token, mask=mine, other=0.0)
        place = (before + row)[:, None]

        factor = factor * tl.load(k_scale + head) if k_scale is not None else factor
        in_cell = head * HEAD_DIM + d[None, :]
        table = block_tables + sequence.to(tl.int64) * table_stride
        largest = tl.full([ROW_BLOCK], float("-inf"), tl.float32)
        total = tl.zeros([ROW_BLOCK], tl.float32)
        acc = tl.zeros([ROW_BLOCK, DIM_BLOCK], tl.float32)
        end = before + tl.minimum(first_row + ROWS, rows)
        first = tl.maximum(before + first_row - WINDOW + 1, 0) if WINDOW else 0
        for start in range(first // TILE * TILE, end, TILE):
            position = start + tl.arange(0, TILE)
            held = (position >= first) & (position < end)
            cell = find_cells(table, position, held, page_stride, token_stride, PAGE_SIZE)
            at_cell, there = cell[:, None] + in_cell, held[:, None] & columns
            visible = position[None, :] <= place
            if WINDOW:
                visible &= position[None, :] > place - WINDOW
            largest, total, acc = attend(
                query, k_cache + at_cell, v_cache + at_cell, there, visible, factor, largest, total, acc
            )
        acc = acc / total[:, None]
        acc = acc * tl.load(v_scale + head) if v_scale is not None else acc
        tl.store(out + at * out_stride + in_token, acc.to(out.dtype.element_ty), mask=mine)
