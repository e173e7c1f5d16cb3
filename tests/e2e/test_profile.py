"""A recording of the real server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Any

import httpx
import pytest
from e2e.serving import MODEL, Server

TOKENS = 24
REQUESTS = 4

Event = dict[str, Any]


@pytest.fixture(scope="module")
def profiled(server: Server) -> dict[str, Any]:
    """The trace of a few streamed requests, with `steps`, how many `/metrics` counted meanwhile."""

    def stream(i: int) -> str:
        body = {"model": MODEL, "prompt": f"Once upon {i}", "max_tokens": TOKENS, "stream": True}
        return httpx.post(server.url + "/v1/completions", json=body, timeout=None).text

    before = server.metrics()["stretto_steps_total"]
    assert httpx.post(server.url + "/start_profile").status_code == 200
    with ThreadPoolExecutor(REQUESTS) as pool:
        assert all(text.endswith("data: [DONE]\n\n") for text in pool.map(stream, range(REQUESTS)))
    answer = httpx.post(server.url + "/stop_profile", timeout=None)
    assert answer.status_code == 200
    return {**answer.json(), "steps": server.metrics()["stretto_steps_total"] - before}


def spans(trace: dict[str, Any], *names: str) -> list[Event]:
    found = [e for e in trace["traceEvents"] if e["ph"] == "X" and (not names or e["name"] in names)]
    return sorted(found, key=lambda e: (e["ts"], -e["dur"]))


def tracks(trace: dict[str, Any]) -> dict[str, list[Event]]:
    """Spans by process and thread."""
    named = [e for e in trace["traceEvents"] if e["ph"] == "M"]
    process = {e["pid"]: e["args"]["name"] for e in named if e["name"] == "process_name"}
    thread = {(e["pid"], e["tid"]): e["args"]["name"] for e in named if e["name"] == "thread_name"}
    ordered = sorted(spans(trace), key=lambda e: (e["pid"], e["tid"]))
    return {
        f"{process[key[0]]} {thread[key]}": list(group)
        for key, group in groupby(ordered, key=lambda e: (e["pid"], e["tid"]))
    }


def ends(span: Event) -> float:
    return float(span["ts"]) + float(span["dur"])


def test_every_role_and_every_stream_of_the_device_has_a_track(profiled: dict[str, Any]) -> None:
    assert {name: {e["name"] for e in found} - {"verify"} for name, found in tracks(profiled).items()} == {
        "gateway.0 loop": {"read", "submit", "deliver", "write"},
        "tokenizer.0 loop": {"turn", "tokenise", "encode", "send"},
        "scheduler.0 loop": {
            "turn", "receive", "digest", "match", "plan", "encode", "send", "deliver",
        },
        "executor.0 loop": {"turn", "collect", "encode", "send", "receive", "launch"},
        "device of executor.0 queue, even steps": {"queued"},
        "device of executor.0 queue, odd steps": {"queued"},
        "device of executor.0 compute": {"step"},
        "device of executor.0 copy": {"copy"},
        "detokenizer.0 loop": {"turn", "receive", "detokenise", "collect text", "encode"},
    }  # fmt: skip


@pytest.mark.parametrize("name", ["plan", "launch", "queued", "step", "copy", "digest"])
def test_every_step_is_there_once(profiled: dict[str, Any], name: str) -> None:
    numbers = [span["args"]["step"] for span in spans(profiled, name)]
    assert profiled["steps"] >= TOKENS
    assert len(numbers) == profiled["steps"]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_a_step_is_planned_launched_run_and_digested_in_this_order(profiled: dict[str, Any]) -> None:
    stages = [spans(profiled, name) for name in ("plan", "launch", "step", "copy", "digest")]
    for plan, launch, step, copy, digest in zip(*stages, strict=True):
        assert ends(plan) <= launch["ts"] <= step["ts"] < ends(step) <= ends(copy) <= digest["ts"]


def test_spans_of_a_track_nest(profiled: dict[str, Any]) -> None:
    for name, found in tracks(profiled).items():
        open_until: list[float] = []
        for span in found:
            while open_until and open_until[-1] <= span["ts"] + 1e-6:
                open_until.pop()
            assert not open_until or ends(span) <= open_until[-1] + 1e-6, (name, span)
            open_until.append(ends(span))


def test_a_step_is_queued_while_the_one_before_runs(profiled: dict[str, Any]) -> None:
    steps, queued = spans(profiled, "step"), spans(profiled, "queued")
    ahead = [wait["ts"] < ends(step) for step, wait in zip(steps, queued[1:], strict=False)]
    assert sum(ahead) >= 0.9 * len(ahead)


def test_each_step_has_its_arrows(profiled: dict[str, Any]) -> None:
    for phase in "stf":
        arrows = [event for event in profiled["traceEvents"] if event["ph"] == phase]
        assert len(arrows) == profiled["steps"]


def test_what_a_ring_took_in_came_out(profiled: dict[str, Any]) -> None:
    def of(name: str) -> list[tuple[str, int]]:
        return sorted((e["args"]["edge"], e["args"]["position"]) for e in spans(profiled, name))

    assert of("send") == of("receive")


def test_a_process_that_died_has_left_what_it_recorded(start: Any) -> None:
    server: Server = start()
    httpx.post(server.url + "/start_profile")
    server.complete("Once", max_tokens=5, ignore_eos=True)
    server.family()["executor"].kill()
    server.complete("Twice", max_tokens=6, ignore_eos=True)
    trace = httpx.post(server.url + "/stop_profile").json()
    steps = [span["args"]["step"] for span in spans(trace, "step")]
    assert steps == [1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 6]
    server.stop()
