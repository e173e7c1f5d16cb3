"""The figures of a trace."""

from __future__ import annotations

import pytest

from stretto.roles.client.profile_report import Latency, percentile, report
from stretto.tests.roles.client.traces import (
    LATE,
    TO_EXECUTOR,
    TO_SCHEDULER,
    device,
    executor,
    scheduler,
    trace,
)


def test_the_device_is_idle_for_what_its_steps_say() -> None:
    figures = report(trace(*LATE))
    assert (figures.steps, figures.busy, figures.idle) == (2, 2000, 1000)
    assert figures.idle_share == pytest.approx(1 / 3)
    assert (figures.ahead, figures.followed) == (0, 1)


def test_steps_ahead_are_those_queued_before_the_one_ahead_ended() -> None:
    begins = {1: (0, 1000), 2: (1999, 2000), 3: (3001, 3010)}
    steps = [
        device("step", start, (i + 1) * 1000, i, idle_ns=start % 1000) for i, (_, start) in begins.items()
    ]
    queued = [device("queued", *times, i) for i, times in begins.items()]
    assert report(trace(*steps, *queued))[4:6] == (1, 2)


def test_a_step_after_a_pause_follows_none() -> None:
    steps = device("step", 0, 1000, 1, idle_ns=0), device("step", 9_000, 10_000, 2, idle_ns=0)
    assert report(trace(*steps, device("queued", 8_900, 9_000, 2)))[4:6] == (0, 0)


def test_the_scheduler_is_told_in_microseconds_per_step() -> None:
    told = (
        *LATE,
        scheduler("turn", 1100, 5100),
        executor("encode", 1055, 9000),
        scheduler("deliver", 1700, 1800),
        scheduler("match", 1300, 1340),
    )
    assert report(trace(*told)).scheduler == {
        "turn": 2.0,
        "digest": 0.015,
        "plan": 0.15,
        "match": 0.02,
        "encode": 0.04,
        "deliver": 0.05,
    }


def test_a_ring_is_timed_from_send_to_receive() -> None:
    assert report(trace(*LATE)).rings == [
        Latency(TO_SCHEDULER, 1, 100, 100),
        Latency(TO_EXECUTOR, 1, 100, 100),
    ]


def test_what_was_sent_before_the_recording_is_not_timed() -> None:
    assert report(trace(executor("receive", 0, 10, edge=TO_EXECUTOR, position=64))).rings == []


def test_loops_are_busy_in_their_outermost_spans() -> None:
    told = (
        scheduler("turn", 0, 1000),
        scheduler("plan", 100, 900),
        scheduler("turn", 2000, 3000),
        executor("turn", 0, 500),
    )
    figures = report(trace(*told, device("step", 0, 10_000, 1, idle_ns=0), seconds=1e-5))
    assert figures.loops == pytest.approx({"scheduler.0": 0.2, "executor.0": 0.05})


def test_counters_and_losses_go_along() -> None:
    counters = {"scheduler.0": {"generated_tokens_total": 70.0, "wasted_tokens_total": 10.0}}
    figures = report(trace(counters=counters, dropped={"scheduler.0": 3, "executor.0": 4}))
    assert (figures.generated, figures.wasted, figures.dropped) == (70, 10, 7)


def test_a_trace_without_steps_has_no_shares() -> None:
    figures = report(trace())
    assert (figures.steps, figures.idle_share, figures.scheduler, figures.causes) == (0, 0.0, {}, [])


def test_percentiles_are_of_nearest_rank() -> None:
    values = list(range(100, 0, -1))
    assert [percentile(values, share) for share in (0.0, 0.5, 0.99, 1.0)] == [1, 50, 99, 100]
    assert percentile([7], 0.5) == 7
