"""Asking a trace for spans."""

from __future__ import annotations

from stretto.roles.client.profile_spans import Span, Spans, last
from stretto.tests.roles.client.traces import TO_EXECUTOR, executor, scheduler, trace


def test_spans_are_in_order_of_time_outer_ones_first() -> None:
    spans = Spans(trace(scheduler("plan", 20, 30), scheduler("turn", 10, 90), executor("turn", 10, 50)))
    assert spans.all == [
        Span(10, 90, "scheduler.0", "turn", {}),
        Span(10, 50, "executor.0", "turn", {}),
        Span(20, 30, "scheduler.0", "plan", {}),
    ]
    assert [span.process for span in spans.named("turn")] == ["scheduler.0", "executor.0"]
    assert spans.of_process("turn", "executor.0") == [spans.all[1]]
    assert spans.named("launch") == []


def test_of_a_step_number_used_twice_the_nearest_before_is_meant() -> None:
    spans = Spans(trace(scheduler("plan", 10, 20, step=1), scheduler("plan", 50, 60, step=1)))
    assert [spans.of_step("plan", 1, until) for until in (9, 10, 49, 50)] == [
        None,
        *spans.all[:1] * 2,
        spans.all[1],
    ]
    assert spans.of_step("plan", 2, 99) is None


def test_a_ring_has_two_ends() -> None:
    spans = Spans(
        trace(
            scheduler("send", 0, 10, edge=TO_EXECUTOR, position=64),
            executor("receive", 5, 15, edge=TO_EXECUTOR, position=64),
            scheduler("send", 20, 30, edge=TO_EXECUTOR, position=128),
            scheduler("send", 40, 50, edge=TO_EXECUTOR, position=64),
            executor("receive", 60, 70, edge=TO_EXECUTOR, position=64),
            executor("receive", 80, 90, edge=TO_EXECUTOR, position=192),
        )
    )
    first, second = spans.of_ring("receive", TO_EXECUTOR)[:2]
    sends = spans.of_ring("send", TO_EXECUTOR)
    assert (spans.sent(first), spans.sent(second)) == (sends[0], sends[2])
    assert [spans.received(sent) for sent in sends] == [first, None, second]
    assert spans.sent(spans.all[-1]) is None
    assert spans.edges == [TO_EXECUTOR]


def test_before_the_first_there_is_none() -> None:
    spans = Spans(trace(scheduler("turn", 10, 20))).all
    assert (last(spans, 9), last(spans, 10), last([], 9)) == (None, spans[0], None)
