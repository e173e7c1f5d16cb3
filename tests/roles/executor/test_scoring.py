"""What the host knows of a step's log-probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from stretto.roles import messages as m
from stretto.roles.executor.scoring import Chunk, Row, Scores, scores_of
from stretto.roles.executor.slots import HostSlots


def int32(*values: Any) -> bytes:
    return np.array(values, np.int32).tobytes()


@pytest.fixture
def slots() -> HostSlots:
    """Slot 0 wants nothing, 1 its own values alone, 2 five alternatives, 3 three for its prompt."""
    slots = HostSlots(4, 8, page_size=2)
    wanted = [m.Sampling(), m.Sampling(logprobs=0), m.Sampling(logprobs=5), m.Sampling(prompt_logprobs=3)]
    slots.admit([m.Admit(slot, 0, b"", sampling) for slot, sampling in enumerate(wanted)])
    return slots


def test_a_step_that_nobody_asks_is_not_scored(slots: HostSlots) -> None:
    assert scores_of(m.Plan(step=1), slots, np.array([0, 3]), 100) == (None, None)


def test_sampled_rows_of_slots_that_ask(slots: HostSlots) -> None:
    scores, rows = scores_of(m.Plan(step=1), slots, np.array([2, 0, 1]), 100)
    assert scores == Scores([Row(0, 5), Row(2, 0)], [], 5)
    assert rows is not None
    assert [column.tolist() for column in rows] == [[0, 2], [], []]
    assert (scores.rows, scores.size) == (2, 24)


def test_every_token_of_a_scored_chunk_but_the_first_then_its_label(slots: HostSlots) -> None:
    plan = m.Plan(
        step=1,
        chunks=int32([0, 2, 1], [3, 3, 0], [3, 1, 1], [3, 2, 1]),
        chunk_ids=int32(10, 11, 20, 21, 22, 30, 40, 41),
        scored=int32([1, 23], [2, -1], [3, -1]),
    )
    scores, rows = scores_of(plan, slots, np.array([0, 3, 3]), 100)
    assert scores == Scores([], [Chunk(1, 3, 3), Chunk(2, 0, 3), Chunk(3, 1, 3)], 3)
    assert rows is not None
    assert [column.tolist() for column in rows] == [[], [2, 3, 4, 6], [21, 22, 23, 41]]
    assert [column.dtype.name for column in rows] == ["int64", "int64", "int32"]


def test_the_vocabulary_bounds_the_alternatives(slots: HostSlots) -> None:
    plan = m.Plan(step=1, chunks=int32([3, 2, 0]), chunk_ids=int32(1, 2), scored=int32([0, -1]))
    scores, _ = scores_of(plan, slots, np.array([2]), 2)
    assert scores == Scores([Row(0, 2)], [Chunk(0, 1, 2)], 2)


def test_a_buffer_becomes_messages() -> None:
    scores = Scores([Row(0, 1), Row(3, 2)], [Chunk(2, 2, 1), Chunk(4, 0, 2)], 2)
    buffer = np.full(scores.size + 5, 99, np.int32)
    columns = scores.columns(buffer, np.float32)
    columns.values[:] = [-1, -2, -3, -4]
    columns.ranks[:] = [1, 2, 3, 4]
    columns.top_ids[:] = [[10, 11], [20, 21], [30, 31], [40, 41]]
    columns.top[:] = [[-0.5, -1], [-1, -1.5], [-2, -3], [-4, -5]]
    assert buffer[scores.size :].tolist() == [99] * 5
    rows, chunks = scores.messages(buffer)
    assert rows == [
        m.RowLogprobs(0, -1.0, 1, int32(10), np.float32([-0.5]).tobytes()),
        m.RowLogprobs(3, -2.0, 2, int32(20, 21), np.float32([-1, -1.5]).tobytes()),
    ]
    assert chunks == [
        m.ChunkLogprobs(
            2, np.float32([-3, -4]).tobytes(), int32(3, 4), int32(30, 40), np.float32([-2, -4]).tobytes()
        ),
        m.ChunkLogprobs(4, b"", b""),
    ]


def test_tensors_and_arrays_have_the_same_columns() -> None:
    scores = Scores([Row(0, 1), Row(1, 1)], [], 1)
    buffer = torch.arange(8, dtype=torch.int32)
    tensors, arrays = scores.columns(buffer, torch.float32), scores.columns(buffer.numpy(), np.float32)
    for tensor, array in zip(tensors, arrays, strict=True):
        assert tensor.data_ptr() == array.ctypes.data
        assert tuple(tensor.shape) == array.shape
        assert tensor.is_contiguous()
