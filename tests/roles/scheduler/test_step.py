"""A step as a message, and as what is remembered of it."""

from __future__ import annotations

import numpy as np
import pytest

from stretto.roles import messages as m
from stretto.roles.scheduler import step
from stretto.roles.scheduler.memory import Placement
from stretto.roles.scheduler.pages import Ints, Pool
from stretto.roles.scheduler.radix import Tree
from stretto.roles.scheduler.sequence import Sequence, Waiting
from stretto.roles.scheduler.step import Draft


def array(*values: int) -> Ints:
    return np.array(values, np.int32)


def sequence(sampling: m.Sampling) -> Sequence:
    request = m.Request(1, 0.0, array(11, 12, 13).tobytes(), 1, (), sampling, m.Output(0, True))
    return Sequence(request, 1, 2, Waiting(array(0)))


def placement(length: int) -> Placement:
    return Placement(length, array(6), array(8), 2, Tree(Pool(1), 4).match(array(1)).node)


def test_a_draft_becomes_a_plan_field_by_field() -> None:
    one = sequence(m.Sampling(seed=3))
    draft = Draft(number=7, budget=10)
    assert not draft
    draft.decode(np.array([4, 2], np.int64))
    draft.grow(np.array([2], np.int64), array(9))
    draft.admit(3, one, array(11, 12, 13, 20), placement(5), array(6, 1, 0))
    draft.chunk(5, array(50, 51))
    draft.score_chunk(one, 1, 52)
    draft.chunk(3, array(30))
    draft.last_chunk(one, 6, samples=True)
    assert draft
    assert draft.budget == 5
    assert draft.plan(cold=True) == m.Plan(
        7,
        [m.Admit(3, 5, array(6, 1, 0).tobytes(), m.Sampling(seed=3), 3)],
        array(8, 1).tobytes(),
        array(2, 9).tobytes(),
        array(5, 2, 0, 3, 1, 1).tobytes(),
        array(50, 51, 30).tobytes(),
        array(4, 2).tobytes(),
        cold=True,
        scored=array(0, 52).tobytes(),
    )
    flight = draft.flight()
    assert flight.number == 7
    assert flight.sampling.tolist() == [3, 4, 2]
    assert flight.prefilled == [(one, 6)]
    assert [source.tolist() for source in flight.held] == [[8]]
    assert flight.scored == {0: (one, 1)}


def test_a_prompt_that_samples_nothing_has_no_row_in_the_result() -> None:
    one = sequence(m.Sampling())
    draft = Draft(number=1, budget=10)
    draft.chunk(3, array(30))
    draft.last_chunk(one, 6, samples=False)
    assert draft.plan(cold=False).chunks == array(3, 1, 0).tobytes()
    assert draft.flight().sampling.tolist() == []
    assert draft.flight().prefilled == [(one, 6)]


@pytest.mark.parametrize(
    ("controls", "told"),
    [
        (None, False),
        (m.Controls(min_tokens=3), False),
        (m.Controls(presence_penalty=-0.5), True),
        (m.Controls(frequency_penalty=0.5), True),
        (m.Controls(repetition_penalty=1.1), True),
        (m.Controls(bad_words=(b"\0\0\0\0",)), True),
    ],
)
def test_the_history_is_told_where_logits_depend_on_it(controls: m.Controls | None, told: bool) -> None:
    draft = Draft(number=1, budget=10)
    tokens = array(11, 12, 13, 20)
    draft.admit(3, sequence(m.Sampling(controls=controls)), tokens, placement(2), array(6, 1))
    assert draft.plan(cold=False).admits[0].history == (tokens.tobytes() if told else b"")


def test_a_draft_is_closed_when_its_admits_have_become_large() -> None:
    draft = Draft(number=1, budget=10)
    tokens = np.zeros(step.MAX_ADMIT_BYTES // 8, np.int32)
    for _ in range(2):
        assert draft.open
        draft.admit(3, sequence(m.Sampling(controls=m.Controls(1.0))), tokens, placement(2), array(6, 1))
    assert not draft.open


def test_a_draft_is_closed_when_its_budget_is_used_up() -> None:
    draft = Draft(number=1, budget=2)
    draft.chunk(5, array(50, 51))
    assert not draft.open
