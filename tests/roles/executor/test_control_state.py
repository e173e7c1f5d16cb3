"""The state that controls keep on the device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from stretto.roles import messages as m
from stretto.roles.executor.control_state import ControlState
from stretto.roles.executor.controls import ControlledRows, ControlUpdates, control_updates

INF = float("inf")


def int32(*values: Any) -> bytes:
    return np.array(values, np.int32).tobytes()


def updates(slot: int, prompt_length: int = 0, history: tuple[int, ...] = (), **controls: Any) -> Any:
    """What admitting one slot brings, as tensors."""
    sampling = m.Sampling(controls=m.Controls(**controls))
    found = control_updates([m.Admit(slot, 0, b"", sampling, prompt_length, int32(*history))])
    assert found is not None
    return ControlUpdates(*map(torch.from_numpy, found))


def rows(*slots: int, positions: list[int]) -> ControlledRows[torch.Tensor]:
    return ControlledRows(torch.arange(len(slots)), torch.tensor(slots), torch.tensor(positions))


@pytest.fixture
def state() -> ControlState:
    return ControlState(slots=3, vocabulary=6, context=10, place=torch.device("cpu"))


def applied(state: ControlState, slot: int, position: int, value: float = 0.0) -> list[float]:
    logits = torch.full((1, 6), value)
    state.apply(logits, rows(slot, positions=[position]))
    return logits[0].tolist()


def test_what_is_not_allowed_cannot_come_whatever_its_bias(state: ControlState) -> None:
    bias = np.array([2.0, 3.0], np.float32).tobytes()
    state.admit(updates(1, allowed_ids=int32(0, 4), bias_ids=int32(4, 5), bias_values=bias))
    assert applied(state, 1, 0) == [0.0, -INF, -INF, -INF, 2.0, -INF]


def test_a_new_owner_of_a_slot_starts_afresh(state: ControlState) -> None:
    state.admit(updates(1, 2, (3, 4, 3), allowed_ids=int32(0), frequency_penalty=1.0, repetition_penalty=2.0))
    state.count(torch.tensor([3], dtype=torch.int32), rows(1, positions=[3]))
    state.admit(updates(1, 1, (2,), bias_ids=int32(5), bias_values=np.float32([7]).tobytes()))
    assert applied(state, 1, 1, 1.0) == [1.0, 1.0, 1.0, 1.0, 1.0, 8.0]
    state.admit(updates(1, 1, (2,), presence_penalty=0.5))
    assert applied(state, 1, 1, 1.0) == [1.0] * 6


def test_counts_begin_with_the_history_and_go_on(state: ControlState) -> None:
    state.admit(updates(0, 2, (3, 4, 3, 3), frequency_penalty=1.0, repetition_penalty=2.0))
    assert applied(state, 0, 4, 4.0) == [4.0, 4.0, 4.0, 0.0, 2.0, 4.0]
    state.count(torch.tensor([9, 4], dtype=torch.int32)[1:], rows(0, positions=[4]))
    assert applied(state, 0, 5, 4.0) == [4.0, 4.0, 4.0, 0.0, 1.0, 4.0]


def test_bad_words_match_across_history_and_new_tokens(state: ControlState) -> None:
    state.admit(updates(0, 1, (5, 1), bad_words=(int32(1, 2, 3),)))
    assert applied(state, 0, 2) == [0.0] * 6
    state.count(torch.tensor([2], dtype=torch.int32), rows(0, positions=[2]))
    assert applied(state, 0, 3) == [0.0, 0.0, 0.0, -INF, 0.0, 0.0]


def test_longer_bans_make_room_and_keep_those_of_others(state: ControlState) -> None:
    state.admit(updates(0, bad_words=(int32(2),)))
    state.admit(updates(1, bad_words=tuple(int32(3) for _ in range(40))))
    assert applied(state, 0, 0) == [0.0, 0.0, -INF, 0.0, 0.0, 0.0]
    assert applied(state, 1, 0) == [0.0, 0.0, 0.0, -INF, 0.0, 0.0]
    state.admit(updates(1, bad_words=(int32(4),)))
    assert applied(state, 1, 0) == [0.0, 0.0, 0.0, 0.0, -INF, 0.0]


def test_rows_with_controls_need_an_admit(state: ControlState) -> None:
    with pytest.raises(RuntimeError, match="no slot was admitted with any"):
        applied(state, 0, 0)
