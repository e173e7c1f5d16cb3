import numpy as np
from steps import ints

from stretto.roles import messages as m
from stretto.roles.executor.deltas import deltas_of


def test_the_pages_of_admits_come_before_growth():
    plan = m.Plan(
        step=1,
        admits=[m.Admit(3, 5, ints(11, 12), m.Sampling()), m.Admit(0, 0, b"", m.Sampling())],
        growth=ints((0, 13), (3, 14)),
        chunks=ints((0, 2, 1)),
        chunk_ids=ints(71, 72),
        decodes=ints(3, 1),
    )
    deltas = deltas_of(plan)
    assert deltas.counts.tolist() == [2, 4, 1, 2]
    assert deltas.admits.tolist() == [[3, 5], [0, 0]]
    assert deltas.appends.tolist() == [[3, 11], [3, 12], [0, 13], [3, 14]]
    assert deltas.chunks.tolist() == [[0, 2, 1]]
    assert deltas.chunk_ids.tolist() == [71, 72]
    assert deltas.decodes.tolist() == [3, 1]


def test_an_empty_plan_has_arrays_of_the_right_shapes():
    deltas = deltas_of(m.Plan(step=1))
    assert [part.shape for part in deltas] == [(4,), (0, 2), (0, 2), (0, 3), (0,), (0,)]
    assert all(part.dtype == np.int32 for part in deltas)
