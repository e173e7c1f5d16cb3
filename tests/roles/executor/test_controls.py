"""Controls of requests as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stretto.kernels.apply_controls.state import BANS, BIAS, PENALTIES
from stretto.roles import messages as m
from stretto.roles.executor.controls import control_updates, controlled_rows, kinds_of


def int32(*values: Any) -> bytes:
    return np.array(values, np.int32).tobytes()


def float32(*values: float) -> bytes:
    return np.array(values, np.float32).tobytes()


def admit(slot: int, controls: m.Controls | None, prompt_length: int = 0, *history: int) -> m.Admit:
    return m.Admit(slot, 0, b"", m.Sampling(controls=controls), prompt_length, int32(*history))


BIASED = m.Controls(bias_ids=int32(4, 5), bias_values=float32(1.5, -100))
ALLOWED = m.Controls(allowed_ids=int32(7, 4, 9), bias_ids=int32(4), bias_values=float32(2))
PENALISED = m.Controls(presence_penalty=0.5, frequency_penalty=0.25, repetition_penalty=1.5)
BANNED = m.Controls(bad_words=(int32(6), b"", int32(1, 2, 3)), min_tokens=4, min_tokens_ids=int32(8, 9))


@pytest.mark.parametrize(
    ("controls", "kinds"),
    [
        (None, 0),
        (m.Controls(), 0),
        (m.Controls(min_tokens=3), 0),
        (m.Controls(min_tokens_ids=int32(3)), 0),
        (m.Controls(min_tokens=3, min_tokens_ids=int32(3)), BANS),
        (m.Controls(bad_words=(int32(3),)), BANS),
        (m.Controls(bad_words=(b"",)), 0),
        (BIASED, BIAS),
        (m.Controls(allowed_ids=int32(1)), BIAS),
        (m.Controls(presence_penalty=-0.1), PENALTIES),
        (m.Controls(frequency_penalty=0.1), PENALTIES),
        (m.Controls(repetition_penalty=0.9), PENALTIES),
    ],
)
def test_only_controls_with_an_effect_count(controls: m.Controls | None, kinds: int) -> None:
    assert kinds_of(controls) == kinds


def test_admits_without_effective_controls_bring_nothing() -> None:
    assert control_updates([admit(0, None), admit(1, m.Controls())]) is None


def test_biases_and_allowed_ids() -> None:
    updates = control_updates([admit(3, BIASED, 2), admit(0, None), admit(1, ALLOWED, 5)])
    assert updates is not None
    assert updates.slots.tolist() == updates.biased.tolist() == [3, 1]
    assert updates.kinds.tolist() == [BIAS, BIAS]
    assert updates.prompt_lengths.tolist() == [2, 5]
    assert updates.fill.tolist() == [0.0, -np.inf]
    assert updates.allowed.tolist() == [[1, 7], [1, 4], [1, 9]]
    assert updates.bias_at.tolist() == [[3, 4], [3, 5], [1, 4]]
    assert updates.bias.tolist() == [1.5, -100.0, 2.0]
    assert updates.penalised.tolist() == updates.prompt.tolist() == []


def test_penalties_bring_the_tokens_of_prompt_and_output() -> None:
    updates = control_updates([admit(2, PENALISED, 2, 5, 6, 7, 7), admit(1, PENALISED, 1, 9)])
    assert updates is not None
    assert [column.tolist() for column in updates[4:7]] == [[0.5, 0.5], [0.25, 0.25], [1.5, 1.5]]
    assert updates.penalised.tolist() == [2, 1]
    assert updates.prompt.tolist() == [[2, 5], [2, 6], [1, 9]]
    assert updates.output.tolist() == [[2, 7], [2, 7]]
    assert updates.past.shape == (0, 3)


def test_bans_are_runs_and_see_where_the_output_stands() -> None:
    updates = control_updates([admit(0, BIASED), admit(2, BANNED, 2, 5, 6, 7, 8)])
    assert updates is not None
    assert updates.bans.tolist() == [[0] * 10, [1, 6, 3, 1, 2, 3, -2, 8, 9, 0]]
    assert updates.min_tokens.tolist() == [0, 4]
    assert updates.past.tolist() == [[2, 2, 7], [2, 3, 8]]
    assert updates.output.shape == (0, 2)


def test_ids_are_not_needed_where_nothing_looks_at_them() -> None:
    early = m.Controls(min_tokens=2, min_tokens_ids=int32(9))
    updates = control_updates([admit(0, BIASED, 100), admit(1, early, 50)])
    assert updates is not None
    assert updates.prompt_lengths.tolist() == [100, 50]
    assert updates.past.shape == (0, 3)


@pytest.mark.parametrize("controls", [PENALISED, BANNED])
def test_controls_that_look_back_without_ids_are_a_bug(controls: m.Controls) -> None:
    with pytest.raises(RuntimeError, match="slot 2 look back"):
        control_updates([admit(2, controls, 3, 1, 2)])


def test_array_types_are_those_the_state_takes() -> None:
    updates = control_updates([admit(0, ALLOWED)])
    assert updates is not None
    types = {name: array.dtype.name for name, array in updates._asdict().items()}
    reals = {"presence", "frequency", "repetition", "fill", "bias"}
    ints = {"kinds", "prompt_lengths", "min_tokens", "bans"}
    assert {name for name, kind in types.items() if kind == "float32"} == reals
    assert {name for name, kind in types.items() if kind == "int32"} == ints
    assert {name for name, kind in types.items() if kind == "int64"} == types.keys() - reals - ints


def test_controlled_rows_are_picked_from_those_that_sample() -> None:
    kinds = np.array([0, 1, 0, 4], np.int32)
    rows = controlled_rows(kinds, np.array([3, 0, 1]), np.array([30, 0, 10]))
    assert rows is not None
    assert [column.tolist() for column in rows] == [[0, 2], [3, 1], [30, 10]]
    assert controlled_rows(kinds, np.array([2, 0]), np.array([1, 1])) is None
