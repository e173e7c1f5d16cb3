"""Random runs of plans: what a `prepare_step` makes of them is what the host's `make_batch` does."""

import numpy as np
import torch
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from stretto.kernels.prepare_step import Deltas, SlotState, StepInputs
from stretto.roles import messages as m
from stretto.roles.executor.batch import make_batch
from stretto.roles.executor.deltas import deltas_of
from stretto.roles.executor.slots import HostSlots

some = settings(
    max_examples=8, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)
"""An interpreted kernel is slow, and to shrink what it fails at takes minutes."""
SLOTS, PAGES_PER_SLOT, SPARE = 5, 6, 5
GARBAGE = -77


def ints(*values):
    return np.array(values, np.int32).tobytes()


class Planner:
    """Draws plans that are legal: a slot has the pages of all its tokens, and one sequence a plan."""

    def __init__(self, draw, page_size):
        self.draw, self.page_size = draw, page_size
        self.lengths, self.pages, self.free = {}, {}, iter(range(1000, 2000))

    def plan(self, step):
        admits, growth, chunks, chunk_ids, decodes = [], [], [], [], []
        for slot in self.draw(st.permutations(range(SLOTS))):
            kind = self.draw(st.sampled_from(["admit", "chunk", "decode", "rest"]))
            if kind == "admit":
                admits.append(self.admit(slot))
            if kind == "rest" or slot not in self.lengths:
                continue
            room = self.page_size * PAGES_PER_SLOT - self.lengths[slot]
            count = 1 if kind == "decode" else self.draw(st.integers(1, 7))
            if count > room:
                continue
            growth += self.grow(slot, count)
            if kind == "decode":
                decodes.append(slot)
            else:
                chunks.append((slot, count, self.draw(st.integers(0, 1))))
                chunk_ids += self.draw(st.lists(st.integers(0, 99), min_size=count, max_size=count))
        growth = self.draw(st.permutations(growth))
        return m.Plan(
            step,
            admits,
            growth=ints(*growth),
            chunks=ints(*chunks),
            chunk_ids=ints(*chunk_ids),
            decodes=ints(*decodes),
        )

    def admit(self, slot):
        length = self.draw(st.integers(0, self.page_size * 2))
        count = -(-length // self.page_size)
        self.lengths[slot], self.pages[slot] = length, count
        return m.Admit(slot, length, ints(*[next(self.free) for _ in range(count)]), m.Sampling())

    def grow(self, slot, count):
        self.lengths[slot] += count
        wanted = -(-self.lengths[slot] // self.page_size) - self.pages[slot]
        self.pages[slot] += wanted
        return [(slot, next(self.free)) for _ in range(wanted)]


def fresh_state():
    def column(*shape):
        return torch.full((SLOTS + 1, *shape), GARBAGE, dtype=torch.int32)

    return SlotState(column(), column(), column(PAGES_PER_SLOT), torch.arange(50, 51 + SLOTS).int())


def fresh_inputs(rows, sequences, samples):
    def whole(*shape):
        return torch.full(shape, GARBAGE, dtype=torch.int32)

    def long(count):
        return torch.full((count,), GARBAGE, dtype=torch.int64)

    tables, sampled = whole(sequences, PAGES_PER_SLOT), [long(samples) for _ in range(3)]
    starts, lengths = whole(sequences + 1), whole(sequences)
    return StepInputs(
        whole(rows), whole(rows), long(rows), long(sequences), starts, lengths, tables, *sampled
    )


def upload(deltas, extra):
    """With room for more, filled with garbage."""
    parts = [
        np.pad(part, [(0, extra)] + [(0, 0)] * (part.ndim - 1), constant_values=-9) for part in deltas[1:]
    ]
    return Deltas(*(torch.from_numpy(part) for part in (deltas.counts, *parts)))


def assert_equals_batch(inputs, batch, ids):
    """The used parts are those of the batch, the rest is padding."""
    rows, sequences, samples = len(batch.rows.ids), len(batch.rows.slots), len(batch.rows.sampled_rows)
    for name in ("positions", "cells", "slots", "kv_lengths", *batch.rows._fields[-3:]):
        expected = getattr(batch.rows, name).tolist()
        assert getattr(inputs, name)[: len(expected)].tolist() == expected, name
    assert inputs.ids[:rows].tolist() == ids
    assert inputs.query_starts[: sequences + 1].tolist() == batch.rows.query_starts.tolist()
    padded = torch.arange(len(inputs.query_starts) - sequences) + rows
    assert torch.equal(inputs.query_starts[sequences:].long(), padded.clamp(max=len(inputs.ids)))
    assert not inputs.ids[rows:].any()
    assert not inputs.positions[rows:].any()
    assert (inputs.cells[rows:] == -1).all()
    assert not inputs.kv_lengths[sequences:].any()
    assert (inputs.slots[sequences:] == SPARE).all()
    assert (inputs.sampled_slots[samples:] == SPARE).all()
    assert not inputs.sampled_rows[samples:].any()
    assert not inputs.sampled_positions[samples:].any()


def assert_tables(inputs, batch, host, page_size):
    for index, (slot, length) in enumerate(zip(batch.rows.slots, batch.rows.kv_lengths, strict=True)):
        used = -(-int(length) // page_size)
        pages = host.cells(np.full(used, slot), np.arange(used) * page_size) // page_size
        assert inputs.block_tables[index, :used].tolist() == pages.tolist()
        assert (inputs.block_tables[index, used:] == GARBAGE).all()


def run(prepare, draw, page_size, extra, steps):
    host, state, planner = (
        HostSlots(SLOTS, PAGES_PER_SLOT, page_size),
        fresh_state(),
        Planner(draw, page_size),
    )
    for step in range(1, steps + 1):
        plan = planner.plan(step)
        batch = make_batch(plan, host, vocabulary=100)
        rows, sequences, samples = (len(batch.rows[part]) for part in (0, 3, 6))
        inputs = fresh_inputs(rows + extra // 2, sequences + extra, samples + extra)
        prepare(state, upload(deltas_of(plan), extra), inputs, page_size)
        chunk_rows, decodes = batch.sizes.chunk_rows, np.frombuffer(plan.decodes, np.int32)
        ids = batch.rows.ids[:chunk_rows].tolist() + state.last_token[torch.tensor(decodes)].tolist()
        assert_equals_batch(inputs, batch, ids)
        assert_tables(inputs, batch, host, page_size)
        assert all(state.lengths[slot] == length for slot, length in planner.lengths.items())
