"""Log-probabilities between a step and the requests."""

from __future__ import annotations

import numpy as np
import pytest

from stretto.roles import messages as m
from stretto.roles.scheduler import scores


def ints(*values: int) -> bytes:
    return np.array(values, np.int32).tobytes()


def floats(*values: float) -> bytes:
    return np.array(values, np.float32).tobytes()


PART = m.ChunkLogprobs(
    0, floats(-1, -2, -3), ints(1, 2, 3), ints(10, 11, 20, 21, 30, 31), floats(-1, -9, -2, -9, -3, -9)
)


def test_dropped_tokens_have_none() -> None:
    rows = [
        m.RowLogprobs(0, -0.5, 1),
        m.RowLogprobs(2, -1.5, 3, ints(4), floats(-0.25)),
        m.RowLogprobs(3, -2, 1),
    ]
    made = scores.of_tokens(rows, np.array([7, 1, 4, 2]), np.array([1, 4, 2]), np.arange(100, 110))
    assert made == [m.TokenLogprobs(104, -1.5, 3, ints(4), floats(-0.25)), m.TokenLogprobs(102, -2, 1)]


def test_the_first_run_of_a_chunk_is_all_news() -> None:
    assert scores.of_prompt(9, 5, 5, PART) == m.PromptLogprobs(
        9, 5, PART.logprobs, PART.ranks, PART.top_ids, PART.top
    )


def test_what_is_known_from_an_earlier_run_is_left_out() -> None:
    assert scores.of_prompt(9, 7, 5, PART) == m.PromptLogprobs(
        9, 7, floats(-3), ints(3), ints(30, 31), floats(-3, -9)
    )
    assert scores.of_prompt(9, 8, 5, PART) is None


def test_alternatives_are_optional() -> None:
    part = m.ChunkLogprobs(0, floats(-1, -2), ints(1, 2))
    assert scores.of_prompt(9, 2, 1, part) == m.PromptLogprobs(9, 2, floats(-2), ints(2))


def test_a_gap_is_a_bug() -> None:
    with pytest.raises(
        AssertionError, match=r"request 9: log-probabilities \[3, 5\) of the prompt are missing"
    ):
        scores.of_prompt(9, 3, 5, PART)
