import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from steps import SPARE, fresh_inputs, fresh_state, ints, run, some, upload

from stretto.kernels.prepare_step import SlotState, triton
from stretto.roles import messages as m
from stretto.roles.executor.deltas import deltas_of

SMALL = {80: {"appends": 4, "sequences": 2, "rows": 8, "entries": 4}}
"""So that blocks end within every kind of work."""


@given(data=st.data())
@some
def test_a_step_is_what_the_host_makes_of_its_plan(monkeypatch, data):
    monkeypatch.setattr(triton, "CONFIGS", SMALL)
    page_size, extra = data.draw(st.integers(1, 3)), data.draw(st.integers(0, 3))
    run(triton.prepare_step, data.draw, page_size, extra, steps=3)


def test_blocks_of_the_real_sizes():
    """Pages of two slots in turn, more than one block of appends, and a chunk of more than one of rows."""
    wide = SlotState(*(part.repeat(1, 40) if part.ndim == 2 else part for part in fresh_state()))
    pages = np.arange(300, 460).reshape(-1, 2)
    growth = np.stack([np.tile([3, 1], 80), pages.ravel()], axis=1).astype(np.int32)
    admits = [m.Admit(slot, 0, b"", m.Sampling()) for slot in (3, 1)]
    ids = np.arange(158, dtype=np.int32)
    plan = m.Plan(1, admits, growth=growth.tobytes(), chunks=ints((1, 158, 1)), chunk_ids=ids.tobytes())
    inputs = fresh_inputs(158, 1, 1)._replace(block_tables=torch.zeros(1, 240, dtype=torch.int32))
    triton.prepare_step(wide, upload(deltas_of(plan), 0), inputs, page_size=2)
    assert inputs.ids.tolist() == ids.tolist()
    assert inputs.cells.tolist() == [2 * page + offset for page in pages[:79, 1] for offset in (0, 1)]
    assert wide.table[3, :80].tolist() == pages[:, 0].tolist()
    assert wide.page_counts[[1, 3]].tolist() == [80, 80]


def test_a_token_without_a_page_has_no_cell():
    plan = m.Plan(1, [m.Admit(2, 0, ints(9), m.Sampling())], chunks=ints((2, 3, 0)), chunk_ids=ints(5, 6, 7))
    inputs = fresh_inputs(3, 1, 1)
    triton.prepare_step(fresh_state(), upload(deltas_of(plan), 0), inputs, page_size=2)
    assert inputs.cells.tolist() == [18, 19, -1]


def test_a_graph_for_more_sequences_gets_padding_that_names_the_spare_slot():
    """A bucket of four decodes with one in it: each padded sequence has a row of its own, and no keys."""
    state, inputs = fresh_state(), fresh_inputs(4, 4, 4)
    plan = m.Plan(1, [m.Admit(2, 3, ints(9, 8), m.Sampling())], decodes=ints(2))
    triton.prepare_step(state, upload(deltas_of(plan), 3), inputs, page_size=2)
    assert inputs.ids.tolist() == [52, 0, 0, 0]
    assert inputs.cells.tolist() == [17, -1, -1, -1]
    assert inputs.query_starts.tolist() == [0, 1, 2, 3, 4]
    assert inputs.kv_lengths.tolist() == [4, 0, 0, 0]
    assert inputs.slots.tolist() == inputs.sampled_slots.tolist() == [2, SPARE, SPARE, SPARE]
    assert inputs.sampled_rows.tolist() == [0, 0, 0, 0]
    assert inputs.sampled_positions.tolist() == [4, 0, 0, 0]
