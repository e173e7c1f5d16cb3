"""What a sequence knows of itself in every state."""

from __future__ import annotations

import numpy as np
import pytest

from stretto.roles import messages as m
from stretto.roles.scheduler.sequence import Sequence, Waiting


def sequence(prompt: int, wanted: int | None) -> Sequence:
    ids = np.zeros(prompt, np.int32)
    sampling = m.Sampling(prompt_logprobs=wanted)
    request = m.Request(1, 0.0, ids.tobytes(), 5, (), sampling, m.Output(0, True))
    return Sequence(request, 0, prompt + 5, Waiting(ids))


def test_all_but_one_token_can_be_reused() -> None:
    assert [sequence(9, None).reusable(tokens) for tokens in (9, 12)] == [8, 11]


@pytest.mark.parametrize(("scored", "reusable"), [(1, 0), (4, 3), (8, 7), (9, 11)])
def test_what_is_not_scored_yet_is_computed(scored: int, reusable: int) -> None:
    one = sequence(9, 0)
    one.scored = scored
    assert one.reusable(12) == reusable
    assert one.unscored == (scored < 9)


def test_a_prompt_of_one_token_has_nothing_to_score() -> None:
    assert not sequence(1, 5).unscored
