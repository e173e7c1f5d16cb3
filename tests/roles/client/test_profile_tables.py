"""The figures of a profile as tables."""

from __future__ import annotations

import io

from rich.console import Console

from stretto.roles.client.profile_report import report
from stretto.roles.client.profile_tables import show, tables
from stretto.tests.roles.client.traces import LATE, Told, trace


def printed(*told: Told, **other: object) -> str:
    out = io.StringIO()
    show(report(trace(*told, **other)), Console(file=out, width=120))
    return out.getvalue()


def test_every_table_tells_its_figures() -> None:
    counters = {"scheduler.0": {"generated_tokens_total": 90, "wasted_tokens_total": 10}}
    found = {title: rows for title, _, rows in tables(report(trace(*LATE, counters=counters)))}
    assert found["Device"] == [
        ["steps", "2 in 0.0 s, 0.00 ms each"],
        ["idle while there was work", "33.33 % of 0.00 s"],
        ["queued before the step ahead ended", "0 of 1"],
        ["tokens", "90 generated, 10 wasted by deferred stops (10.00 %)"],
    ]
    assert found["What the device waited for"][0] == ["plan", "scheduler", "1", "0.000", "30.0 %", "0.3"]
    assert found["Scheduler, us per step"] == [["0.0", "0.0", "0.1", "0.0", "0.0", "0.0"]]
    assert found["Rings, send to receive"][0] == ["executor.0>scheduler.0", "1", "0.1", "0.1"]
    assert found["Loops"][0] == ["executor.0", "0.0 %"]


def test_a_table_without_rows_is_left_out() -> None:
    alone = [span for span in LATE if span[1] == "step" and span[4]["step"] == 1]
    assert [title for title, *_ in tables(report(trace(*alone)))] == ["Device", "Scheduler, us per step"]


def test_tables_are_printed() -> None:
    text = printed(*LATE)
    for words in ("What the device waited for", "plan in ring", "scheduler.0>executor.0", "p99 us"):
        assert words in text


def test_lost_spans_are_told() -> None:
    assert "spans dropped" in printed(*LATE, dropped={"scheduler.0": 5})
    assert "spans dropped" not in printed(*LATE)


def test_without_steps_it_says_what_to_do() -> None:
    assert "send requests" in printed()
