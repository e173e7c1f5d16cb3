"""Attention of prompt chunks: many rows of many sequences in one launch, keys in tiles (Dao, 2023,
arXiv:2307.08691), read through the block table.

Keys are cut into splits of a fixed number of positions. A block of rows adds up the parts that it gets of the
splits it sees, in order. Where there are many blocks, one program does all splits of a block, and keeps their
sum in memory: in registers it would take the room of what the products need. Where there are few, several
programs share them, and `join_kernel` adds the parts up by the same arithmetic: a row's bits are the same.
Which it is, the device finds out from the chunks that are there.
"""

from __future__ import annotations

import triton
import triton.language as tl

from stretto.kernels.paged_attention.triton_blocks import find_block, find_rows, share_out
from stretto.kernels.paged_attention.triton_tile import TABLES, attend, find_cells, join

COUNTS = ["sequences", "units"]


@triton.jit(do_not_specialize=[*COUNTS, "table_stride"], do_not_specialize_on_alignment=TABLES)
def extend_kernel(
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
    sequences: tl.tensor,
    units: tl.tensor,
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
    SPLIT: tl.constexpr,
    MOST: tl.constexpr,
    PROGRAMS: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    """A program of the grid [programs, Hk] does the query heads of one KV head for ROW_BLOCK // GROUP rows.

    MOST: splits that a block may see. scratch: for each of `units` parts, or else sums of a block, and each
    KV head the weighted values, float32 [ROW_BLOCK, HEAD_DIM], and behind them all the largest scores and
    sums of weights, [ROW_BLOCK, 2].
    PROGRAMS, of a KV head: what may be filled by sharing. Late blocks, which see the most keys, come first.
    """
    ROWS: tl.constexpr = ROW_BLOCK // GROUP
    program, head, heads = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    count, workers = share_out(query_starts, kv_lengths, sequences, units, ROWS, SPLIT, MOST, PROGRAMS)
    if program < count * workers:
        block, worker = count - 1 - program // workers, program % workers
        sequence, first_row, part = find_block(query_starts, kv_lengths, sequences, block, ROWS, SPLIT, MOST)
        token, rows, first, end, splits = find_rows(
            query_starts, kv_lengths, sequence, first_row, ROWS, SPLIT, WINDOW
        )
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
        alone = (workers == 1) | (splits == 1)
        ends = scratch + units.to(tl.int64) * heads * ROW_BLOCK * HEAD_DIM
        for split in range(worker, splits, workers):
            begin = (first // SPLIT + split) * SPLIT
            stop = tl.minimum(begin + SPLIT, end)
            largest = tl.full([ROW_BLOCK], float("-inf"), tl.float32)
            total = tl.zeros([ROW_BLOCK], tl.float32)
            acc = tl.zeros([ROW_BLOCK, DIM_BLOCK], tl.float32)
            for start in range(tl.maximum(begin, first // TILE * TILE), stop, TILE):
                position = start + tl.arange(0, TILE)
                held = (position >= first) & (position < stop)
                cell = find_cells(table, position, held, page_stride, token_stride, PAGE_SIZE)
                at_cell, there = cell[:, None] + in_cell, held[:, None] & columns
                visible = position[None, :] <= place
                if WINDOW:
                    visible &= position[None, :] > place - WINDOW
                largest, total, acc = attend(
                    query, k_cache + at_cell, v_cache + at_cell, there, visible, factor, largest, total, acc
                )
            unit = tl.where(alone, block, part + split).to(tl.int64)
            kept = (unit * heads + head) * ROW_BLOCK + lane
            values = scratch + kept[:, None] * HEAD_DIM + d[None, :]
            if alone & (split > 0):
                tl.debug_barrier()  # other threads may have written what a thread reads
                sums = tl.load(values, mask=columns, other=0.0)
                top, mass = tl.load(ends + kept * 2), tl.load(ends + kept * 2 + 1)
                largest, total, acc = join(top, mass, sums, largest, total, acc)
                tl.debug_barrier()
            if alone & (split + 1 == splits):
                acc = acc / total[:, None]
                acc = acc * tl.load(v_scale + head) if v_scale is not None else acc
                tl.store(out + at * out_stride + in_token, acc.to(out.dtype.element_ty), mask=mine)
            else:
                tl.store(values, acc, mask=columns)
                tl.store(ends + kept * 2, largest)
                tl.store(ends + kept * 2 + 1, total)


@triton.jit(do_not_specialize=COUNTS, do_not_specialize_on_alignment=TABLES[1:])
def join_kernel(
    out: tl.tensor,
    scratch: tl.tensor,
    query_starts: tl.tensor,
    kv_lengths: tl.tensor,
    v_scale: tl.tensor,
    sequences: tl.tensor,
    units: tl.tensor,
    out_stride: tl.tensor,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM_BLOCK: tl.constexpr,
    WINDOW: tl.constexpr,
    ROW_BLOCK: tl.constexpr,
    SPLIT: tl.constexpr,
    MOST: tl.constexpr,
    PROGRAMS: tl.constexpr,
    LANES: tl.constexpr,
    TOGETHER: tl.constexpr,
) -> None:
    """A program of the grid [blocks, Hk, ROW_BLOCK // LANES] adds up what others left of LANES query vectors.

    It has the parts of TOGETHER splits on their way at one time.
    """
    ROWS: tl.constexpr = ROW_BLOCK // GROUP
    block, head, heads = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    count, workers = share_out(query_starts, kv_lengths, sequences, units, ROWS, SPLIT, MOST, PROGRAMS)
    if (block < count) & (workers > 1):
        sequence, first_row, part = find_block(query_starts, kv_lengths, sequences, block, ROWS, SPLIT, MOST)
        token, rows, _, _, splits = find_rows(
            query_starts, kv_lengths, sequence, first_row, ROWS, SPLIT, WINDOW
        )
        lane, d = tl.program_id(2) * LANES + tl.arange(0, LANES), tl.arange(0, DIM_BLOCK)
        row = first_row + lane // GROUP
        columns = (d < HEAD_DIM)[None, :]
        ends = scratch + units.to(tl.int64) * heads * ROW_BLOCK * HEAD_DIM
        top = tl.full([LANES], float("-inf"), tl.float32)
        mass = tl.zeros([LANES], tl.float32)
        sums = tl.zeros([LANES, DIM_BLOCK], tl.float32)
        for start in range(0, tl.where(splits > 1, splits, 0), TOGETHER):
            for i in tl.static_range(TOGETHER):
                there = (row < tl.where(start + i < splits, rows, 0)) & (lane < ROWS * GROUP)
                at = ((part + start + i).to(tl.int64) * heads + head) * ROW_BLOCK + lane
                largest = tl.load(ends + at * 2, mask=there, other=float("-inf"))
                total = tl.load(ends + at * 2 + 1, mask=there, other=0.0)
                values = scratch + at[:, None] * HEAD_DIM + d[None, :]
                acc = tl.load(values, mask=there[:, None] & columns, other=0.0)
                top, mass, sums = join(top, mass, sums, largest, total, acc)
        if splits > 1:
            sums = sums / mass[:, None]
            sums = sums * tl.load(v_scale + head) if v_scale is not None else sums
            to = out + (token + row).to(tl.int64)[:, None] * out_stride
            to += (head * GROUP + lane % GROUP)[:, None] * HEAD_DIM + d[None, :]
            mine = ((row < rows) & (lane < ROWS * GROUP))[:, None] & columns
            tl.store(to, sums.to(out.dtype.element_ty), mask=mine)
