"""A gateway's part in a recording, before a scripted supervisor."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from stretto.roles import messages as m
from stretto.roles.gateway.faults import Refused
from stretto.roles.gateway.profiler import Profiler
from stretto.roles.metrics import Meter
from stretto.roles.trace import Label
from stretto.shm.board import Board
from stretto.shm.trace import Traces

NAMES = ["scheduler.0", "gateway.0"]


class Stage:
    """A profiler, and a supervisor that records what it is told and does it."""

    def __init__(self) -> None:
        self.fds = [Board.create(NAMES), Traces.create(NAMES, capacity=4)]
        self.board, self.traces = Board(self.fds[0]), Traces(self.fds[1])
        self.told: list[int] = []
        self.profiler = Profiler(self.board, self.tell, lambda: self.traces)
        self.switch: Callable[[int], int] = lambda since: since

    def tell(self, message: m.Profile) -> None:
        self.told.append(message.since)
        asyncio.get_running_loop().call_soon(self.profiler.traced, self.switch(message.since))


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    for fd in stage.fds:
        os.close(fd)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def test_the_trace_has_what_was_recorded_and_what_was_counted(stage: Stage) -> None:
    async def body() -> Any:
        meter = Meter("scheduler", stage.board.row("scheduler.0"))
        meter.add("wasted_tokens_total", 5)
        await stage.profiler.start()
        section = stage.traces.section("scheduler.0")
        section.begin(stage.told[0])
        section.record(section.label(Label("turn").text()), stage.told[0] + 3000, stage.told[0] + 5000)
        meter.add("wasted_tokens_total", 2)
        return json.loads(await stage.profiler.stop())

    trace = run(body())
    spans = [(e["name"], e["ts"], e["dur"]) for e in trace["traceEvents"] if e["ph"] == "X"]
    assert spans == [("turn", 3.0, 2.0)]
    assert trace["otherData"]["counters"]["scheduler.0"]["wasted_tokens_total"] == 2
    assert trace["otherData"]["dropped"] == {}
    assert stage.told[1:] == [0]


def test_what_was_dropped_is_told(stage: Stage) -> None:
    async def body() -> Any:
        await stage.profiler.start()
        section = stage.traces.section("gateway.0")
        section.begin(stage.told[0])
        for _ in range(7):
            section.record(section.label("turn\t\t"), 1, 2)
        return json.loads(await stage.profiler.stop())

    assert run(body())["otherData"]["dropped"] == {"gateway.0": 3}


def test_sections_of_another_recording_are_left_out(stage: Stage) -> None:
    async def body() -> Any:
        section = stage.traces.section("scheduler.0")
        section.begin(1)
        section.record(section.label("turn\t\t"), 1, 2)
        await stage.profiler.start()
        return json.loads(await stage.profiler.stop())

    assert run(body())["traceEvents"] == []


def test_a_recording_that_runs_is_not_started_again(stage: Stage) -> None:
    async def body() -> None:
        await stage.profiler.start()
        with pytest.raises(Refused, match="already"):
            await stage.profiler.start()

    run(body())
    assert len(stage.told) == 1


def test_one_that_another_gateway_just_started_is_not_ours(stage: Stage) -> None:
    async def body() -> None:
        stage.switch = lambda since: 77
        with pytest.raises(Refused) as refused:
            await stage.profiler.start()
        assert refused.value.fault.status == 409

    run(body())


def test_one_that_another_gateway_started_can_be_stopped_here(stage: Stage) -> None:
    async def body() -> Any:
        stage.profiler.traced(77)
        return json.loads(await stage.profiler.stop())

    assert run(body())["otherData"]["counters"]["scheduler.0"]["steps_total"] == 0
    assert stage.told == [0]


def test_without_a_recording_there_is_nothing_to_stop(stage: Stage) -> None:
    async def body() -> None:
        with pytest.raises(Refused, match="start_profile") as refused:
            await stage.profiler.stop()
        assert refused.value.fault.status == 409

    run(body())
    assert stage.told == []
