import numpy as np
import pytest
import torch
from steps import ints

from stretto.kernels.prepare_step.state import Deltas
from stretto.roles import messages as m
from stretto.roles.executor.delta_batch import Layout, make_delta_batch
from stretto.roles.executor.deltas import deltas_of
from stretto.roles.executor.slots import HostSlots


def admitted(slots=4, pages=6):
    host = HostSlots(slots, pages, page_size=2)
    for slot in range(slots):
        host.admit([m.Admit(slot, 3, ints(2 * slot, 2 * slot + 1), m.Sampling())])
    return host


def test_what_is_packed_is_unpacked():
    plan = m.Plan(
        step=1,
        admits=[m.Admit(3, 5, ints(11, 12), m.Sampling())],
        growth=ints((0, 13)),
        chunks=ints((0, 2, 1), (3, 1, 0)),
        chunk_ids=ints(71, 72, 73),
        decodes=ints(1),
    )
    deltas = deltas_of(plan)
    layout = Layout(*map(len, deltas[1:]))
    unpacked = layout.unpack(torch.from_numpy(layout.pack(deltas)))
    assert [part.tolist() for part in unpacked] == [part.tolist() for part in deltas]


def test_parts_begin_at_multiples_of_sixteen_bytes():
    for rooms in ((1, 1, 1, 1, 1), (2, 3, 1, 7, 5), (0, 24, 0, 0, 24)):
        assert all(start % 4 == 0 for start in Layout(*rooms).starts)


def test_equal_buckets_are_laid_out_equally():
    layout = Layout(appends=4, decodes=4)
    one = layout.pack(deltas_of(m.Plan(1, growth=ints((2, 9)), decodes=ints(0, 1, 2))))
    other = layout.pack(deltas_of(m.Plan(1, decodes=ints(0, 1, 2, 3))))
    assert len(one) == len(other)
    assert isinstance(layout.unpack(torch.from_numpy(one)), Deltas)
    assert layout.unpack(torch.from_numpy(one)).decodes.tolist() == [0, 1, 2, 0]


def test_decodes_alone_have_a_bucket_and_nothing_else_to_send():
    batch = make_delta_batch(m.Plan(1, decodes=ints(2, 0, 1)), admitted(), vocabulary=9)
    assert (batch.bucket, batch.updates, batch.sizes.decodes, batch.sizes.width) == (4, None, 3, 2)


@pytest.mark.parametrize(
    "more",
    [
        {"chunks": ints((1, 1, 0)), "chunk_ids": ints(5)},
        {"copies": ints((1, 2))},
        {"admits": [m.Admit(1, 0, b"", m.Sampling())]},
        {"growth": ints((0, 20), (0, 21))},
    ],
    ids=["chunks", "copies", "admits", "much growth"],
)
def test_other_steps_have_none(more):
    batch = make_delta_batch(m.Plan(1, decodes=ints(0), **more), admitted(), vocabulary=9)
    assert batch.bucket is None
    assert batch.layout == Layout(*map(len, deltas_of(m.Plan(1, decodes=ints(0), **more))[1:]))


def test_sequences_of_several_rows_are_counted():
    plan = m.Plan(1, chunks=ints((0, 1, 1), (1, 1, 0), (3, 1, 1)), chunk_ids=ints(5, 6, 7), decodes=ints(2))
    assert make_delta_batch(plan, admitted(), vocabulary=9).sizes.chunks == (0, 3)
    host = HostSlots(2, 6, page_size=2)
    admits = [m.Admit(slot, 0, ints(2 * slot, 2 * slot + 1), m.Sampling()) for slot in range(2)]
    plan = m.Plan(1, admits, chunks=ints((0, 3, 1), (1, 1, 0)), chunk_ids=ints(5, 6, 7, 8))
    assert make_delta_batch(plan, host, vocabulary=9).sizes.chunks == (1, 4)


def test_lengths_and_widths_follow_the_plans():
    host = admitted()
    make_delta_batch(m.Plan(1, decodes=ints(0)), host, vocabulary=9)
    batch = make_delta_batch(m.Plan(2, decodes=ints(0), growth=ints((0, 20))), host, vocabulary=9)
    assert host.lengths.tolist() == [5, 3, 3, 3]
    assert batch.sizes.width == 3


def test_a_plan_whose_ids_do_not_fit_its_chunks_is_refused():
    plan = m.Plan(7, chunks=ints((0, 1, 1)), chunk_ids=ints(1, 2))
    with pytest.raises(RuntimeError, match="plan 7 has 2 chunk ids for 1 rows"):
        make_delta_batch(plan, admitted(), vocabulary=9)


def test_a_token_without_a_page_is_refused():
    host = admitted()
    make_delta_batch(m.Plan(1, decodes=ints(1)), host, vocabulary=9)
    with pytest.raises(RuntimeError, match="slot 1 has no page for position 4"):
        make_delta_batch(m.Plan(2, decodes=ints(0, 1)), host, vocabulary=9)
    assert np.array_equal(host.lengths, [3, 4, 3, 3])
