"""Input preparation on the GPU, in three launches: slots and sequences, rows, block tables.

The first is one program: what it does is little and each step of it needs the one before. It leaves each
sequence's first row and length, from which the programs of the other two know all about theirs.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from stretto.kernels.generation import choose
from stretto.kernels.prepare_step.state import Deltas, SlotState, StepInputs

CONFIGS = {80: {"appends": 64, "sequences": 128, "rows": 128, "entries": 256}}
"""How many of each a program looks at together. The size of a step makes no other code: nothing is compiled
while serving."""


@triton.jit
def _admit(
    lengths: tl.tensor, page_counts: tl.tensor, admits: tl.tensor, count: tl.tensor, BLOCK: tl.constexpr
) -> None:
    for first in range(0, count, BLOCK):
        index = first + tl.arange(0, BLOCK)
        keep = index < count
        slot = tl.load(admits + 2 * index, mask=keep, other=0)
        tl.store(lengths + slot, tl.load(admits + 2 * index + 1, mask=keep, other=0), mask=keep)
        tl.store(page_counts + slot, 0, mask=keep)
    tl.debug_barrier()


@triton.jit
def _append(
    page_counts: tl.tensor,
    table: tl.tensor,
    appends: tl.tensor,
    count: tl.tensor,
    width: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    """A page's place is its slot's count, and one more for each page of the slot before it in the block."""
    for first in range(0, count, BLOCK):
        index = first + tl.arange(0, BLOCK)
        keep = index < count
        slot = tl.load(appends + 2 * index, mask=keep, other=-1)
        page = tl.load(appends + 2 * index + 1, mask=keep, other=0)
        other = tl.load(appends + 2 * (first + tl.arange(0, BLOCK)), mask=keep, other=-1)
        earlier = (slot[:, None] == other[None, :]) & (
            tl.arange(0, BLOCK)[:, None] > tl.arange(0, BLOCK)[None, :]
        )
        place = tl.load(page_counts + slot, mask=keep, other=0) + tl.sum(earlier.to(tl.int32), axis=1)
        tl.store(table + slot.to(tl.int64) * width + place, page, mask=keep & (place < width))
        tl.debug_barrier()
        tl.atomic_add(page_counts + slot, 1, mask=keep)
        tl.debug_barrier()


@triton.jit(do_not_specialize=["rows", "sequences", "samples"])
def sequences_kernel(
    lengths: tl.tensor,
    page_counts: tl.tensor,
    table: tl.tensor,
    counts: tl.tensor,
    admits: tl.tensor,
    appends: tl.tensor,
    chunks: tl.tensor,
    decodes: tl.tensor,
    slots: tl.tensor,
    query_starts: tl.tensor,
    kv_lengths: tl.tensor,
    sampled_rows: tl.tensor,
    sampled_slots: tl.tensor,
    sampled_positions: tl.tensor,
    width: tl.tensor,
    spare: tl.tensor,
    rows: tl.tensor,
    sequences: tl.tensor,
    samples: tl.tensor,
    APPENDS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    _admit(lengths, page_counts, admits, tl.load(counts), BLOCK)
    _append(page_counts, table, appends, tl.load(counts + 1), width, APPENDS)
    for first in range(0, samples, BLOCK):
        index = first + tl.arange(0, BLOCK)
        tl.store(sampled_rows + index, 0, mask=index < samples)
        tl.store(sampled_slots + index, spare, mask=index < samples)
        tl.store(sampled_positions + index, 0, mask=index < samples)
    tl.debug_barrier()
    chunk_count = tl.load(counts + 2)
    count = chunk_count + tl.load(counts + 3)
    row, sampled = 0, 0
    for first in range(0, sequences + 1, BLOCK):
        index = first + tl.arange(0, BLOCK)
        is_chunk, there = index < chunk_count, index < count
        is_decode = there & (index >= chunk_count)
        slot = tl.load(chunks + 3 * index, mask=is_chunk, other=spare)
        slot = tl.load(decodes + index - chunk_count, mask=is_decode, other=slot)
        tokens = tl.load(chunks + 3 * index + 1, mask=is_chunk, other=is_decode.to(tl.int32))
        wanted = tl.load(chunks + 3 * index + 2, mask=is_chunk, other=is_decode.to(tl.int32)) != 0
        before = tl.load(lengths + slot, mask=there, other=0)
        after = before + tokens
        end = row + tl.cumsum(tokens, 0)
        start = tl.where(there, end - tokens, tl.minimum(end + index - count, rows))
        tl.store(lengths + slot, after, mask=there)
        tl.store(slots + index, slot, mask=index < sequences)
        tl.store(kv_lengths + index, after, mask=index < sequences)
        tl.store(query_starts + index, start, mask=index <= sequences)
        place = sampled + tl.cumsum(wanted.to(tl.int32), 0) - 1
        tl.store(sampled_rows + place, end - 1, mask=wanted)
        tl.store(sampled_slots + place, slot, mask=wanted)
        tl.store(sampled_positions + place, after, mask=wanted)
        row += tl.sum(tokens)
        sampled += tl.sum(wanted.to(tl.int32))


@triton.jit(do_not_specialize=["rows", "sequences", "steps"])
def rows_kernel(
    page_counts: tl.tensor,
    table: tl.tensor,
    last_token: tl.tensor,
    counts: tl.tensor,
    chunk_ids: tl.tensor,
    slots: tl.tensor,
    query_starts: tl.tensor,
    kv_lengths: tl.tensor,
    ids: tl.tensor,
    positions: tl.tensor,
    cells: tl.tensor,
    width: tl.tensor,
    rows: tl.tensor,
    sequences: tl.tensor,
    page_size: tl.tensor,
    steps: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    """steps: so many bits has the number of sequences. A row finds its sequence by bisection."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    sequence = tl.zeros((BLOCK,), tl.int32)
    for step in range(steps):
        further = sequence + (1 << (steps - 1 - step))
        start = tl.load(query_starts + further, mask=further < sequences, other=2**31 - 1)
        sequence = tl.where(start <= row, further, sequence)
    chunk_count = tl.load(counts + 2)
    start, end = tl.load(query_starts + sequence), tl.load(query_starts + sequence + 1)
    there = (row < end) & (sequence < chunk_count + tl.load(counts + 3))
    slot = tl.load(slots + sequence, mask=there, other=0)
    position = tl.load(kv_lengths + sequence, mask=there, other=0) - end + row
    index = position // page_size
    backed = there & (index < tl.load(page_counts + slot, mask=there, other=0))
    page = tl.load(table + slot * width + index, mask=backed, other=0).to(tl.int64)
    cell = tl.where(backed, page * page_size + position % page_size, -1)
    in_chunk = there & (sequence < chunk_count)
    token = tl.load(last_token + slot, mask=there & ~in_chunk, other=0)
    token = tl.load(chunk_ids + row, mask=in_chunk, other=token)
    tl.store(ids + row, token, mask=row < rows)
    tl.store(positions + row, tl.where(there, position, 0), mask=row < rows)
    tl.store(cells + row, cell, mask=row < rows)


@triton.jit
def tables_kernel(
    table: tl.tensor,
    slots: tl.tensor,
    kv_lengths: tl.tensor,
    block_tables: tl.tensor,
    width: tl.tensor,
    page_size: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    sequence, index = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    used = tl.cdiv(tl.load(kv_lengths + sequence), page_size)
    keep = (index < used) & (index < width)
    page = tl.load(table + tl.load(slots + sequence) * width + index, mask=keep, other=0)
    tl.store(block_tables + sequence * width + index, page, mask=keep)


def prepare_step(state: SlotState, deltas: Deltas[torch.Tensor], inputs: StepInputs, page_size: int) -> None:
    """See `stretto.kernels.prepare_step.prepare_step`. All tensors are contiguous."""
    config = choose(CONFIGS)
    slots, width = state.table.shape
    rows, sequences = len(inputs.ids), len(inputs.slots)
    sequences_kernel[(1,)](
        state.lengths,
        state.page_counts,
        state.table,
        deltas.counts,
        deltas.admits,
        deltas.appends,
        deltas.chunks,
        deltas.decodes,
        inputs.slots,
        inputs.query_starts,
        inputs.kv_lengths,
        inputs.sampled_rows,
        inputs.sampled_slots,
        inputs.sampled_positions,
        width,
        slots - 1,
        rows,
        sequences,
        len(inputs.sampled_rows),
        APPENDS=config["appends"],
        BLOCK=config["sequences"],
        num_warps=4,
    )
    rows_kernel[(triton.cdiv(rows, config["rows"]),)](
        state.page_counts,
        state.table,
        state.last_token,
        deltas.counts,
        deltas.chunk_ids,
        inputs.slots,
        inputs.query_starts,
        inputs.kv_lengths,
        inputs.ids,
        inputs.positions,
        inputs.cells,
        width,
        rows,
        sequences,
        page_size,
        sequences.bit_length(),
        BLOCK=config["rows"],
        num_warps=4,
    )
    tables_kernel[(sequences, triton.cdiv(width, config["entries"]))](
        state.table,
        inputs.slots,
        inputs.kv_lengths,
        inputs.block_tables,
        width,
        page_size,
        BLOCK=config["entries"],
        num_warps=4,
    )
