"""Requests live as long as somebody waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from stretto.roles import messages as m
from stretto.roles.gateway import http
from stretto.roles.gateway.door import Door
from stretto.roles.gateway.faults import Refused
from stretto.roles.gateway.job import Job
from stretto.roles.gateway.stream import HungUp
from stretto.roles.gateway.submitting import speak, submitted
from stretto.roles.metrics import Meter
from stretto.tests.roles.gateway.house import ids

JOB = Job(params=m.SamplingParams(), prompts=("Hi",), stream=True)


class Wires:
    def __init__(self) -> None:
        self.sent: list[m.ToTokenizer] = []

    def offer(self, tokenizer: int, message: m.ToTokenizer) -> bool:
        self.sent.append(message)
        return True

    def post(self, tokenizer: int, message: m.ToTokenizer) -> None:
        self.sent.append(message)


class Echo:
    """Writes texts as they are, in brackets."""

    def opening(self, events: list[m.Event]) -> bytes:
        return b"["

    def event(self, event: m.Event) -> bytes:
        return event.text.encode() + (b"]" if event.finish_reason else b"")


class Bench:
    """A door, and a client that stays until `leave` is set."""

    def __init__(self) -> None:
        self.wires, self.leave = Wires(), asyncio.Event()
        meter = Meter("gateway", memoryview(bytearray(8 * 128)).cast("d"))
        self.door = Door(0, 1, 1, self.wires, meter)
        self.written: list[bytes] = []

    async def receive(self) -> http.Message:
        await self.leave.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: http.Message) -> None:
        self.written.append(message.get("body", b""))

    def events(self, *events: m.Event) -> None:
        self.door.on_message(m.Events(list(events)))


def run(body: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        await body(Bench())

    asyncio.run(whole())


def test_what_lives_when_the_block_is_left_is_cancelled() -> None:
    async def body(bench: Bench) -> None:
        async with submitted(bench.door, [JOB, JOB], {}, bench.receive) as (_, (first, second)):
            bench.events(m.Event(first.uid, 0, "a", ids(1), "stop"))
        assert bench.door.live == 0
        assert [s for s in bench.wires.sent if isinstance(s, m.Cancel)] == [m.Cancel(second.uid)]

    run(body)


def test_a_client_that_leaves_is_noticed() -> None:
    async def body(bench: Bench) -> None:
        async with submitted(bench.door, [JOB], {}, bench.receive) as (inbox, _):
            bench.leave.set()
            with pytest.raises(HungUp):
                await inbox.get()
        assert bench.door.live == 0

    run(body)


def test_events_are_spoken_in_pieces_as_they_come() -> None:
    async def body(bench: Bench) -> None:
        async with submitted(bench.door, [JOB], {}, bench.receive) as (_, (stream,)):
            bench.events(m.Event(stream.uid, 0, "a", ids(1)), m.Event(stream.uid, 1, "b", ids(1)))
            speaking = asyncio.create_task(speak(stream, Echo(), bench.send))
            while len(bench.written) < 2:
                await asyncio.sleep(0)
            bench.events(m.Event(stream.uid, 2, "c", ids(1), "stop"))
            await speaking
        assert bench.written == [b"", b"[ab", b"c]"]

    run(body)


def test_a_refusal_before_all_else_is_raised_and_nothing_is_written() -> None:
    async def body(bench: Bench) -> None:
        async with submitted(bench.door, [JOB], {}, bench.receive) as (_, (stream,)):
            bench.door.on_message(m.Rejected(stream.uid, m.Fault(400, "no")))
            with pytest.raises(Refused):
                await speak(stream, Echo(), bench.send)
        assert bench.written == []

    run(body)
