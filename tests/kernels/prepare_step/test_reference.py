from hypothesis import given
from hypothesis import strategies as st
from steps import fresh_inputs, fresh_state, ints, run, some, upload

from stretto.kernels.prepare_step import prepare_step
from stretto.roles import messages as m
from stretto.roles.executor.deltas import deltas_of


@given(data=st.data())
@some
def test_a_step_is_what_the_host_makes_of_its_plan(data):
    page_size, extra = data.draw(st.integers(1, 3)), data.draw(st.integers(0, 3))
    run(prepare_step, data.draw, page_size, extra, steps=5)


def test_a_token_without_a_page_has_no_cell():
    plan = m.Plan(1, [m.Admit(2, 0, ints(9), m.Sampling())], chunks=ints((2, 3, 0)), chunk_ids=ints(5, 6, 7))
    inputs = fresh_inputs(3, 1, 1)
    prepare_step(fresh_state(), upload(deltas_of(plan), 0), inputs, page_size=2)
    assert inputs.cells.tolist() == [18, 19, -1]
