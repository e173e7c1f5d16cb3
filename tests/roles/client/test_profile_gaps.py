"""Who the device waited for."""

from __future__ import annotations

from stretto.roles.client.profile_gaps import Cause, causes
from stretto.roles.client.profile_spans import Spans
from stretto.tests.roles.client.traces import LATE, Told, device, executor, scheduler, trace


def found(*told: Told) -> list[Cause]:
    return causes(Spans(trace(*told)))


def totals(*told: Told) -> dict[str, int]:
    return {cause.stage: cause.total for cause in found(*told)}


def test_a_gap_is_cut_at_the_ends_of_the_stages() -> None:
    assert totals(*LATE) == {
        "result to host": 10,
        "collect": 50,
        "result in ring": 100,
        "digest": 100,
        "plan": 300,
        "encode": 40,
        "plan in ring": 100,
        "before launch": 40,
        "launch": 190,
        "start": 70,
    }


def test_the_costliest_comes_first_with_who_was_late() -> None:
    first, second, *_ = found(*LATE)
    assert (first, first.role) == (Cause("plan", 1, 300, 300), "scheduler")
    assert (second, second.role) == (Cause("launch", 0, 190, 190), "executor")


def test_what_was_over_before_the_gap_is_not_to_blame() -> None:
    ahead = [span for span in LATE if span[1] != "step"]
    steps = device("step", 900, 1940, 1, idle_ns=0), device("step", 2000, 3000, 2, idle_ns=60)
    assert totals(*ahead, *steps) == {"start": 60}


def test_without_idleness_there_is_no_cause() -> None:
    assert found(device("step", 0, 1000, 1, idle_ns=0), device("step", 5000, 6000, 2, idle_ns=0)) == []


def test_moments_that_no_span_tells_of_belong_to_the_stage_after_them() -> None:
    kept = [span for span in LATE if span[1] in ("step", "plan", "launch", "queued")]
    assert totals(*kept) == {"plan": 560, "before launch": 180, "launch": 190, "start": 70}
    assert totals(*(span for span in LATE if span[1] == "step")) == {"start": 1000}


def test_several_gaps_add_up() -> None:
    third = (
        scheduler("plan", 3005, 3007, step=3),
        executor("launch", 3008, 3010, step=3),
        device("queued", 3010, 3020, 3),
        device("step", 3020, 4000, 3, idle_ns=20),
    )
    launch = next(cause for cause in found(*LATE, *third) if cause.stage == "launch")
    start = next(cause for cause in found(*LATE, *third) if cause.stage == "start")
    assert launch == Cause("launch", 0, 192, 190)
    assert start == Cause("start", 1, 80, 70)
