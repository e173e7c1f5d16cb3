"""A step as a message, and as what is remembered of it."""

from __future__ import annotations

import numpy as np

from stretto.roles import messages as m
from stretto.roles.scheduler.memory import Placement
from stretto.roles.scheduler.pages import Ints, Pool
from stretto.roles.scheduler.radix import Tree
from stretto.roles.scheduler.sequence import Sequence, Waiting
from stretto.roles.scheduler.step import Draft


def array(*values: int) -> Ints:
    return np.array(values, np.int32)


def sequence() -> Sequence:
    request = m.Request(1, 0.0, b"\0\0\0\0", 1, (), m.Sampling(), m.Output(0, True))
    return Sequence(request, 1, 2, Waiting(array(0)))


def test_a_draft_becomes_a_plan_field_by_field() -> None:
    node = Tree(Pool(1), 4).match(array(1)).node
    one = sequence()
    draft = Draft(number=7, budget=10)
    assert not draft
    draft.decode(np.array([4, 2], np.int64))
    draft.grow(np.array([2], np.int64), array(9))
    draft.admit(3, Placement(5, array(6), array(8), 2, node), array(6, 1, 0), m.Sampling(seed=3))
    draft.chunk(5, array(50, 51))
    draft.chunk(3, array(30))
    draft.sample_chunk(one, 6)
    assert draft
    assert draft.budget == 5
    assert draft.plan(cold=True) == m.Plan(
        7,
        [m.Admit(3, 5, array(6, 1, 0).tobytes(), m.Sampling(seed=3))],
        array(8, 1).tobytes(),
        array(2, 9).tobytes(),
        array(5, 2, 0, 3, 1, 1).tobytes(),
        array(50, 51, 30).tobytes(),
        array(4, 2).tobytes(),
        cold=True,
    )
    flight = draft.flight()
    assert flight.number == 7
    assert flight.sampling.tolist() == [3, 4, 2]
    assert flight.prefilled == [(one, 6)]
    assert [source.tolist() for source in flight.held] == [[8]]
