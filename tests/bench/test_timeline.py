"""The picture of a few steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from stretto.bench.timeline import MARGIN, ROWS, TITLES, TOP, WIDTH, Window, arrows, choose, draw, main
from stretto.roles.client.profile_spans import Span, Spans
from stretto.tests.roles.client.traces import Told, device, executor, scheduler, trace

SVG = "{http://www.w3.org/2000/svg}"
MS = 1_000_000


def steady(steps: int) -> dict[str, Any]:
    """Steps of ten milliseconds, each planned and queued at the beginning of the one before it."""
    told: list[Told] = []
    for step in range(1, steps + 1):
        now = step * 10 * MS
        told += [
            device("step", now, now + 10 * MS, step, idle_ns=0),
            device("queued", now - 8 * MS, now, step),
            executor("launch", now - 8 * MS, now - 7 * MS, step=step),
            scheduler("plan", now - 9 * MS, now - 8 * MS, step=step, rows=1),
            scheduler("digest", now + 10 * MS, now + 11 * MS, step=step, tokens=1),
        ]
    return trace(*told)


def bars(picture: str) -> dict[str, tuple[float, float, float]]:
    """(x, y, width) by title, without the duration."""
    root = ElementTree.fromstring(picture)
    found = [rect for rect in root.findall(f"{SVG}rect") if rect.find(f"{SVG}title") is not None]
    return {
        str(rect.findtext(f"{SVG}title")).rpartition(",")[0]: tuple(  # type: ignore[misc]
            float(rect.get(name, "")) for name in ("x", "y", "width")
        )
        for rect in found
    }


def test_the_window_of_median_length_is_chosen() -> None:
    starts = [0, 10, 30, 60, 100, 150]
    steps = [Span(start, start, "device", "step", {}) for start in starts]
    assert choose(steps, 2) == Window(30, 103)


def test_times_are_places() -> None:
    window = Window(100, 300)
    assert window.x(100) == MARGIN
    assert window.x(200) == MARGIN + (WIDTH - MARGIN - 10) / 2
    assert (window.x(0), window.x(999)) == pytest.approx((MARGIN, WIDTH - 10))


def test_step_n_plus_1_is_seen_queued_while_step_n_runs() -> None:
    found = bars(draw(steady(8), steps=3))
    running = next(int(name.rpartition(" ")[2]) for name in found if ": step" in name)
    step_x, step_y, step_width = found[f"device of executor.0: step {running}"]
    queued_x, queued_y, queued_width = found[f"device of executor.0: queued {running + 1}"]
    assert (step_y, queued_y) == (TOP + 34 * TITLES.index("device"), TOP + 34 * TITLES.index("device queue"))
    assert queued_x == pytest.approx(step_x + 0.2 * step_width, abs=0.1)
    assert queued_x + queued_width == pytest.approx(step_x + step_width, abs=0.1)


def test_what_is_too_short_to_see_is_drawn_all_the_same() -> None:
    told = steady(8)
    told["traceEvents"].append(
        {"ph": "X", "name": "deliver", "pid": 1, "tid": 1, "ts": 45_000, "dur": 0.001, "args": {}}
    )
    assert bars(draw(told, steps=6))["scheduler.0: deliver"][2] == 1.5


def test_arrows_lead_from_plan_to_queue_and_from_step_to_digest() -> None:
    found = list(arrows(Spans(steady(5)), Window(30 * MS, 36 * MS)))
    assert found == [
        ((32 * MS, "scheduler"), (32 * MS, "device queue")),
        ((30 * MS, "device"), (30 * MS, "scheduler")),
    ]


def test_every_row_has_a_title_and_the_caption_is_there() -> None:
    texts = [
        text.text for text in ElementTree.fromstring(draw(steady(6), 3, "on a toaster")).findall(f"{SVG}text")
    ]
    assert {*TITLES, "on a toaster", "0", "10 ms"} <= set(texts)
    assert len(ROWS) == 6


def test_a_trace_can_be_drawn_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(json.dumps(steady(6)))
    result = CliRunner().invoke(main, [str(tmp_path / "t.json"), "--out", str(tmp_path / "t.svg")])
    assert result.exit_code == 0
    assert (tmp_path / "t.svg").read_text().startswith("<svg ")


def test_a_trace_that_is_too_short_is_refused_with_both_numbers(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(json.dumps(steady(3)))
    result = CliRunner().invoke(main, [str(tmp_path / "t.json"), "--steps", "5"])
    assert (result.exit_code, result.output) == (
        1,
        "Error: the trace has 3 steps, which is too few to show 5\n",
    )
