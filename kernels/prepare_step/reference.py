"""Input preparation in plain torch, a sequence at a time."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from stretto.kernels.prepare_step.state import Deltas, SlotState, StepInputs


def update_slots(state: SlotState, admits: list[list[int]], appends: list[list[int]]) -> None:
    """Start slots afresh, then append pages."""
    for slot, length in admits:
        state.lengths[slot], state.page_counts[slot] = length, 0
    for slot, page in appends:
        state.table[slot, state.page_counts[slot]] = page
        state.page_counts[slot] += 1


def cells(state: SlotState, slot: int, positions: torch.Tensor, page_size: int) -> torch.Tensor:
    """Where the tokens at these positions go, int64; -1 where the slot has no page."""
    index = (positions // page_size).long()
    there = index < state.page_counts[slot]
    pages = state.table[slot, index.where(there, 0)].long()
    return torch.where(there, pages * page_size + positions % page_size, -1)


def pad(inputs: StepInputs, spare: int) -> None:
    """Everything as if there were neither rows nor sequences."""
    for part in (inputs.ids, inputs.positions, inputs.kv_lengths, inputs.sampled_rows):
        part.zero_()
    inputs.sampled_positions.zero_()
    inputs.cells.fill_(-1)
    inputs.slots.fill_(spare)
    inputs.sampled_slots.fill_(spare)


def sequences(deltas: Deltas[torch.Tensor], state: SlotState) -> Iterator[tuple[int, torch.Tensor, bool]]:
    """Slot, token ids and whether to sample, of each sequence."""
    _, _, chunks, decodes = deltas.counts.tolist()
    begin = 0
    for slot, count, samples in deltas.chunks[:chunks].tolist():
        yield slot, deltas.chunk_ids[begin : begin + count], samples != 0
        begin += count
    for slot in deltas.decodes[:decodes].tolist():
        yield slot, state.last_token[slot : slot + 1], True


def prepare_step(state: SlotState, deltas: Deltas[torch.Tensor], inputs: StepInputs, page_size: int) -> None:
    """See `stretto.kernels.prepare_step.prepare_step`."""
    admits, appends = deltas.counts[:2].tolist()
    update_slots(state, deltas.admits[:admits].tolist(), deltas.appends[:appends].tolist())
    pad(inputs, spare=len(state.lengths) - 1)
    begin = index = sampled = 0
    for index, (slot, ids, samples) in enumerate(sequences(deltas, state), start=1):
        before, end = int(state.lengths[slot]), begin + len(ids)
        after = before + len(ids)
        positions = torch.arange(before, after, dtype=torch.int32, device=ids.device)
        inputs.ids[begin:end], inputs.positions[begin:end] = ids, positions
        inputs.cells[begin:end] = cells(state, slot, positions, page_size)
        inputs.slots[index - 1], inputs.kv_lengths[index - 1] = slot, after
        inputs.query_starts[index - 1] = begin
        used = -(-after // page_size)
        inputs.block_tables[index - 1, :used] = state.table[slot, :used]
        if samples:
            inputs.sampled_rows[sampled], inputs.sampled_slots[sampled] = end - 1, slot
            inputs.sampled_positions[sampled] = after
            sampled += 1
        state.lengths[slot] = after
        begin = end
    padded = torch.arange(len(inputs.query_starts) - index, device=inputs.ids.device)
    inputs.query_starts[index:] = (begin + padded).clamp(max=len(inputs.ids))
