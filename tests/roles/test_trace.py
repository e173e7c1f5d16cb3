"""Probes: what is recorded while they are in place, and that nothing is left of them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from stretto.roles import trace
from stretto.roles.trace import RINGS, Label, Probe, Recorder, span
from stretto.shm import bell, ring
from stretto.shm.channel import Receiver, Sender
from stretto.shm.trace import Record, Section, Traces


class Clock:
    """Counts how often it was looked at."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        self.now += 1
        return self.now


class Worker:
    gate: asyncio.Future[int]

    def outer(self, step: int) -> int:
        return self.inner(step) + 1

    def inner(self, step: int) -> int:
        return 10 * step

    def fail(self) -> None:
        raise KeyError

    async def wait(self) -> int:
        self.gate = asyncio.get_running_loop().create_future()
        return await self.gate


@pytest.fixture
def section() -> Iterator[Section]:
    fd = Traces.create(["role.0"], capacity=64)
    yield Traces(fd).section("role.0")
    os.close(fd)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(trace, "monotonic_ns", clock)
    return clock


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    recorder = Recorder()
    yield recorder
    recorder.stop()


OUTER = span(Worker, "outer", "outer", ("step", "result"), lambda result, worker, step: (step, result))
INNER = span(Worker, "inner", "inner")


def test_calls_are_recorded_with_their_arguments(section: Section, recorder: Recorder) -> None:
    recorder.start(section, (OUTER, INNER), since=5)
    assert Worker().outer(3) == 31
    recording = section.read()
    assert [Label.parse(text) for text in recording.labels] == [
        Label("outer", ("step", "result")),
        Label("inner"),
    ]
    assert recording.records == [Record(1, 2, 3, 0, 0), Record(0, 1, 4, 3, 31)]
    assert recording.since == 5


def test_nothing_is_left_when_it_stops(section: Section, recorder: Recorder, clock: Clock) -> None:
    before = dict(vars(Worker))
    recorder.start(section, (OUTER, INNER, OUTER), since=5)
    assert vars(Worker)["outer"] is not before["outer"]
    recorder.stop()
    assert dict(vars(Worker)) == before
    Worker().outer(3)
    assert (section.read().records, clock.now) == ([], 0)


def test_a_second_start_of_the_same_recording_changes_nothing(section: Section, recorder: Recorder) -> None:
    for _ in range(2):
        recorder.start(section, (INNER,), since=5)
        Worker().inner(1)
    assert section.read().records == [Record(0, 1, 2, 0, 0), Record(0, 3, 4, 0, 0)]


def test_a_note_may_decline(section: Section, recorder: Recorder) -> None:
    probe = span(Worker, "inner", "inner", ("step",), lambda _, worker, step: (step,) if step > 1 else None)
    recorder.start(section, (probe,), since=5)
    for step in (1, 2):
        Worker().inner(step)
    assert section.read().records == [Record(0, 3, 4, 2, 0)]


def test_what_raises_still_raises(section: Section, recorder: Recorder) -> None:
    recorder.start(section, (span(Worker, "fail", "fail"),), since=5)
    with pytest.raises(KeyError):
        Worker().fail()
    assert section.read().records == []


def test_of_a_coroutine_only_what_runs_is_recorded(section: Section, recorder: Recorder) -> None:
    recorder.start(section, (span(Worker, "wait", "wait"),), since=5)

    async def body() -> int:
        worker = Worker()
        task = asyncio.create_task(worker.wait())
        await asyncio.sleep(0)
        assert section.read().records == [Record(0, 1, 2, 0, 0)]
        worker.gate.set_result(7)
        return await task

    assert asyncio.run(body()) == 7
    assert section.read().records == [Record(0, 1, 2, 0, 0), Record(0, 3, 4, 0, 0)]


def test_a_cancelled_coroutine_is_cancelled_inside(section: Section, recorder: Recorder) -> None:
    recorder.start(section, (span(Worker, "wait", "wait"),), since=5)

    async def body() -> bool:
        worker = Worker()
        task = asyncio.create_task(worker.wait())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled() and worker.gate.cancelled()

    assert asyncio.run(body())


def test_both_ends_of_a_ring_meet_at_the_same_position(section: Section, recorder: Recorder) -> None:
    fds = ring.create("a.0>b.0", 256), bell.create(), bell.create()
    sender, receiver = (End(*(os.dup(fd) for fd in fds)) for End in (Sender, Receiver))
    recorder.start(section, RINGS, since=5)
    for payload in (b"x" * 20, b"y" * 40):
        sender.send(payload)
    assert list(receiver.drain()) == [b"x" * 20, b"y" * 40]
    recording = section.read()
    args = ("position", "bytes")
    assert [Label.parse(text) for text in recording.labels] == [
        Label("send", args, edge="a.0>b.0"),
        Label("receive", args, edge="a.0>b.0"),
    ]
    assert recording.records == [
        Record(0, 1, 2, 48, 20),
        Record(0, 3, 4, 112, 40),
        Record(1, 5, 6, 48, 20),
        Record(1, 7, 8, 112, 40),
    ]
    for end in (sender, receiver):
        end.close()
    for fd in fds:
        os.close(fd)


def test_what_finds_the_ring_full_is_not_recorded(section: Section, recorder: Recorder) -> None:
    sender = Sender(ring.create("a.0>b.0", 128), bell.create(), bell.create())
    recorder.start(section, RINGS, since=5)
    for _ in range(5):
        sender.send(b"x" * 16)
    assert sender.pending == 1
    assert [record.a for record in section.read().records] == [32, 64, 96, 128]
    sender.close()


def test_a_probe_of_what_is_not_there_is_loud(section: Section, recorder: Recorder) -> None:
    with pytest.raises(KeyError, match="outter"):
        recorder.start(section, (Probe(Worker, "outter", lambda section, function: function),), since=5)
