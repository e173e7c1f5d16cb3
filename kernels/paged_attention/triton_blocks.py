"""Which rows and keys a program has that does attention of prompt chunks, found on the device.

Sequences of more than one row are cut into blocks of rows, numbered through. A sequence's keys are cut into
splits at fixed positions. What a block gets of a split is a part; parts are numbered through as well.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

_SEQUENCES = tl.constexpr(128)
"""How many are looked at together."""


@triton.jit
def _count_blocks(
    query_starts: tl.tensor,
    kv_lengths: tl.tensor,
    sequences: tl.tensor,
    first: tl.tensor,
    ROWS: tl.constexpr,
    SPLIT: tl.constexpr,
    MOST: tl.constexpr,
) -> Any:
    """Blocks of the sequences from `first` on, none for one row, and their parts; int32 [_SEQUENCES]."""
    index = first + tl.arange(0, _SEQUENCES)
    there = index < sequences
    begin = tl.load(query_starts + index, mask=there, other=0)
    rows = tl.load(query_starts + index + 1, mask=there, other=0) - begin
    splits = tl.minimum(tl.cdiv(tl.load(kv_lengths + index, mask=there, other=0), SPLIT), MOST)
    blocks = tl.where(rows > 1, tl.cdiv(rows, ROWS), 0)
    return blocks, blocks * splits


@triton.jit
def share_out(
    query_starts: tl.tensor,
    kv_lengths: tl.tensor,
    sequences: tl.tensor,
    units: tl.tensor,
    ROWS: tl.constexpr,
    SPLIT: tl.constexpr,
    MOST: tl.constexpr,
    PROGRAMS: tl.constexpr,
) -> Any:
    """How many blocks there are, and how many programs share each: PROGRAMS in all, if parts have room."""
    count, parts = 0, 0
    for first in range(0, sequences, _SEQUENCES):
        blocks, of_blocks = _count_blocks(query_starts, kv_lengths, sequences, first, ROWS, SPLIT, MOST)
        count += tl.sum(blocks)
        parts += tl.sum(of_blocks)
    shared = tl.where(parts <= units, PROGRAMS // tl.maximum(count, 1), 1)
    return count, tl.maximum(shared, 1)


@triton.jit
def find_block(
    query_starts: tl.tensor,
    kv_lengths: tl.tensor,
    sequences: tl.tensor,
    block: tl.tensor,
    ROWS: tl.constexpr,
    SPLIT: tl.constexpr,
    MOST: tl.constexpr,
) -> Any:
    """The sequence of a block, the block's first row there, and where its parts are."""
    sequence, end, before, part = 0, 0, 0, 0
    for first in range(0, sequences, _SEQUENCES):
        blocks, parts = _count_blocks(query_starts, kv_lengths, sequences, first, ROWS, SPLIT, MOST)
        passed = end + tl.cumsum(blocks, 0) <= block
        sequence += tl.sum(passed.to(tl.int32))
        before += tl.sum(tl.where(passed, blocks, 0))
        part += tl.sum(tl.where(passed, parts, 0))
        end += tl.sum(blocks)
    splits = tl.minimum(tl.cdiv(tl.load(kv_lengths + sequence), SPLIT), MOST)
    return sequence, (block - before) * ROWS, part + (block - before) * splits


@triton.jit
def find_rows(
    query_starts: tl.tensor,
    kv_lengths: tl.tensor,
    sequence: tl.tensor,
    first_row: tl.tensor,
    ROWS: tl.constexpr,
    SPLIT: tl.constexpr,
    WINDOW: tl.constexpr,
) -> Any:
    """A sequence's first row and number of rows; a block's first key, the end of its keys, and its splits."""
    token = tl.load(query_starts + sequence)
    rows = tl.load(query_starts + sequence + 1) - token
    before = tl.load(kv_lengths + sequence) - rows
    first = tl.maximum(before + first_row - WINDOW + 1, 0) if WINDOW else 0
    end = before + tl.minimum(first_row + ROWS, rows)
    return token, rows, first, end, tl.cdiv(end, SPLIT) - first // SPLIT
