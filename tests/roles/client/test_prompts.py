"""The shapes of prompts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stretto.roles.client.prompts import as_conversations, as_params, as_prompts
from stretto.roles.messages import SamplingParams

TURN = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("given", "prompts"),
    [
        ("a", ["a"]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ((1, 2), [[1, 2]]),
        (np.array([1, 2]), [[1, 2]]),
        ([[1], np.array([2, 3]), "a"], [[1], [2, 3], "a"]),
        ({"prompt": "a"}, ["a"]),
        ([{"prompt_token_ids": [1]}, {"prompt": "a"}], [[1], "a"]),
        ([], []),
        ([[]], [[]]),
    ],
)
def test_prompts_become_one_list(given: Any, prompts: list[Any]) -> None:
    assert as_prompts(given) == prompts


@pytest.mark.parametrize("wrong", [1.5, None, [1.5], ["a"], {"text": "a"}])
def test_what_is_no_prompt_is_named(wrong: Any) -> None:
    with pytest.raises(TypeError, match="prompt 1 must be text or a list of token ids"):
        as_prompts(["a", wrong])


def test_conversations_become_one_list() -> None:
    assert as_conversations([TURN]) == [[TURN]]
    assert as_conversations([[TURN], [TURN, TURN]]) == [[TURN], [TURN, TURN]]
    assert as_conversations([]) == []


@pytest.mark.parametrize("wrong", ["hi", ["hi"], 3])
def test_what_is_no_conversation_is_named(wrong: Any) -> None:
    with pytest.raises(TypeError, match="conversation 1 must be a list"):
        as_conversations([[TURN], wrong])


def test_parameters_are_for_all_or_for_each() -> None:
    one, two = SamplingParams(seed=1), SamplingParams(seed=2)
    assert as_params(None, 2) == [SamplingParams()] * 2
    assert as_params(one, 2) == [one, one]
    assert as_params([one, two], 2) == [one, two]
    with pytest.raises(ValueError, match="2 sampling parameters for 3 prompts"):
        as_params([one, two], 3)
