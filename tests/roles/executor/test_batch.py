from typing import Any

import numpy as np
import pytest

from stretto.roles import messages as m
from stretto.roles.executor.batch import make_batch
from stretto.roles.executor.slots import HostSlots


def int32(*values: Any) -> bytes:
    return np.array(values, np.int32).tobytes()


def admit(slot: int, length: int, pages: list[int], sampling: m.Sampling | None = None) -> m.Admit:
    return m.Admit(slot, length, int32(pages), sampling or m.Sampling())


@pytest.fixture
def slots() -> HostSlots:
    return HostSlots(4, 8, page_size=2)


def test_chunks_come_first_and_decodes_follow_at_their_lengths(slots: HostSlots) -> None:
    plan = m.Plan(
        step=1,
        admits=[admit(1, 3, [5, 6]), admit(0, 0, [7, 3]), admit(2, 4, [0, 1])],
        growth=int32([2, 4]),
        chunks=int32([0, 3, 1], [1, 1, 0]),
        chunk_ids=int32(11, 12, 13, 21),
        decodes=int32(2),
    )
    batch = make_batch(plan, slots, 100)
    rows = batch.rows
    assert rows.ids.tolist() == [11, 12, 13, 21, 0]
    assert rows.positions.tolist() == [0, 1, 2, 3, 4]
    assert rows.cells.tolist() == [14, 15, 6, 13, 8]
    assert rows.slots.tolist() == [0, 1, 2]
    assert rows.query_starts.tolist() == [0, 3, 4, 5]
    assert rows.kv_lengths.tolist() == [3, 4, 5]
    assert rows.sampled_rows.tolist() == [2, 4]
    assert rows.sampled_slots.tolist() == [0, 2]
    assert rows.sampled_positions.tolist() == [3, 5]
    assert (batch.sizes.chunk_rows, batch.sizes.decodes, batch.sizes.samples) == (4, 1, 2)
    assert (batch.sizes.width, batch.sizes.chunks) == (3, (1, 4))
    assert slots.lengths.tolist() == [3, 4, 5, 0]


def test_array_types_are_those_the_kernels_take(slots: HostSlots) -> None:
    batch = make_batch(m.Plan(step=1, admits=[admit(0, 1, [0])], decodes=int32(0)), slots, 100)
    types = [array.dtype.name for array in batch.rows]
    assert types == ["int32", "int32", "int64", "int64", "int32", "int32", "int64", "int64", "int64"]
    types = [array.dtype.name for array in batch.updates]
    assert types == ["int64", "float32", "int32", "float32", "float32", "int64", "int64", "int32"]


def test_sampling_parameters_keep_the_bits_of_the_seed(slots: HostSlots) -> None:
    sampling = m.Sampling(temperature=0.5, top_k=3, top_p=0.25, min_p=0.125, seed=2**64 - 2)
    updates = make_batch(m.Plan(step=1, admits=[admit(3, 0, [], sampling)]), slots, 100).updates
    assert [column.tolist() for column in updates[:6]] == [[3], [0.5], [3], [0.25], [0.125], [-2]]


def test_a_plan_without_rows_is_a_step_without_rows(slots: HostSlots) -> None:
    batch = make_batch(m.Plan(step=1, copies=int32([4, 2])), slots, 100)
    assert batch.updates.copies.tolist() == [[4, 2]]
    assert (batch.sizes.rows, batch.sizes.samples) == (0, 0)
    assert batch.rows.query_starts.tolist() == [0]


def test_a_slot_may_be_admitted_and_grow_in_one_plan(slots: HostSlots) -> None:
    plan = m.Plan(
        step=1,
        admits=[admit(0, 0, [1])],
        growth=int32([0, 6]),
        chunks=int32([0, 3, 0]),
        chunk_ids=int32(1, 2, 3),
    )
    batch = make_batch(plan, slots, 100)
    assert batch.updates.entries.tolist() == [[0, 0, 1], [0, 1, 6]]
    assert batch.rows.cells.tolist() == [2, 3, 12]


def test_a_plan_that_contradicts_itself_is_refused(slots: HostSlots) -> None:
    plan = m.Plan(step=4, admits=[admit(0, 0, [1])], chunks=int32([0, 2, 1]), chunk_ids=int32(5))
    with pytest.raises(RuntimeError, match="plan 4 has 1 chunk ids for 2 rows"):
        make_batch(plan, slots, 100)


def test_moving_hands_over_all_arrays_at_once(slots: HostSlots) -> None:
    batch = make_batch(m.Plan(step=1, admits=[admit(0, 1, [0])], decodes=int32(0)), slots, 100)
    calls: list[int] = []

    def upload(arrays: Any) -> list[bytes]:
        calls.append(len(arrays))
        return [array.tobytes() for array in arrays]

    moved = batch.move(upload)
    assert calls == [17]
    assert (moved.control_updates, moved.controlled, moved.scored, moved.scores) == (None, None, None, None)
    assert moved.updates.entries == batch.updates.entries.tobytes()
    assert moved.rows.ids == batch.rows.ids.tobytes()
    assert moved.sizes == batch.sizes


def test_what_few_requests_have_goes_along(slots: HostSlots) -> None:
    controls = m.Controls(bias_ids=int32(3), bias_values=np.float32([1]).tobytes())
    sampling = m.Sampling(controls=controls, logprobs=2, prompt_logprobs=1)
    plan = m.Plan(
        step=1,
        admits=[admit(0, 0, [1]), admit(3, 0, [2], sampling)],
        chunks=int32([0, 2, 1], [3, 2, 1]),
        chunk_ids=int32(5, 6, 7, 8),
        scored=int32([1, -1]),
    )
    batch = make_batch(plan, slots, 100)
    moved = batch.move(lambda arrays: [array.tolist() for array in arrays])
    assert moved.control_updates is not None
    assert moved.control_updates.slots == [3]
    assert moved.controlled == ([1], [3], [2])
    assert moved.scored == ([1], [2], [8])
    assert moved.scores is batch.scores


def test_a_slot_keeps_its_controls_until_it_is_admitted_again(slots: HostSlots) -> None:
    controls = m.Controls(presence_penalty=1.0)
    make_batch(m.Plan(step=1, admits=[admit(3, 0, [2, 5], m.Sampling(controls=controls))]), slots, 100)
    again = make_batch(m.Plan(step=2, decodes=int32(3)), slots, 100)
    assert again.control_updates is None
    assert again.controlled is not None
    later = make_batch(m.Plan(step=3, admits=[admit(3, 1, [2])], decodes=int32(3)), slots, 100)
    assert later.controlled is None


def test_decodes_alone_need_what_their_slots_hold_and_update_nothing(slots: HostSlots) -> None:
    make_batch(m.Plan(step=1, admits=[admit(1, 4, [5, 6, 2]), admit(3, 1, [7])]), slots, 100)
    batch = make_batch(m.Plan(step=2, decodes=int32(3, 1)), slots, 100)
    assert batch.updates is None
    assert [column.tolist() for column in batch.rows] == [
        [0, 0], [1, 4], [15, 4], [3, 1], [0, 1, 2], [2, 5], [0, 1], [3, 1], [2, 5],
    ]  # fmt: skip
    assert (batch.sizes.rows, batch.sizes.samples, batch.sizes.width) == (2, 2, 3)
    assert slots.lengths.tolist() == [0, 5, 0, 2]


def test_ids_without_chunks_are_refused(slots: HostSlots) -> None:
    with pytest.raises(RuntimeError, match="plan 4 has 1 chunk ids for 0 rows"):
        make_batch(m.Plan(step=4, chunk_ids=int32(5)), slots, 100)
