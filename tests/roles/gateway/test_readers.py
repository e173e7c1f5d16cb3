"""Who does not read is cut, nobody else."""

from __future__ import annotations

import asyncio

from stretto.roles.gateway.job import Job
from stretto.roles.gateway.readers import Readers
from stretto.roles.gateway.stream import MAX_PENDING, Inbox, Stream
from stretto.roles.messages import Event, SamplingParams
from stretto.roles.metrics import Meter

JOB = Job(params=SamplingParams(), prompts=("Hi",), stream=True)


class Bench:
    def __init__(self, **limits: float) -> None:
        self.meter = Meter("gateway", memoryview(bytearray(8 * 128)).cast("d"))
        self.readers = Readers(self.meter, **limits)  # type: ignore[arg-type]
        self.cut: list[str] = []

    def stream(self, name: str) -> Stream:
        stream = Stream(1, JOB, Inbox(lambda: self.cut.append(name)), 0.0)
        self.readers.watch(stream.inbox)
        return stream


def say(stream: Stream, text: str = "abc") -> None:
    stream.put(Event(1, 0, text, b"\1\0\0\0"))


def test_a_reader_that_takes_nothing_is_cut_in_the_end() -> None:
    bench = Bench(seconds=10)
    idle, slow = bench.stream("idle"), bench.stream("slow")
    say(slow)
    for now in (0, 5, 9.9):
        bench.readers.cut_slow(now)
    assert bench.cut == []
    bench.readers.cut_slow(10)
    bench.readers.cut_slow(20)
    assert (bench.cut, slow.inbox.was_cut, idle.inbox.was_cut) == (["slow"], True, False)
    assert bench.meter.value("slow_readers_total") == 1


def test_a_reader_that_takes_now_and_then_stays() -> None:
    async def body() -> None:
        bench = Bench(seconds=10)
        stream = bench.stream("late")
        for now in range(0, 90, 9):
            say(stream)
            bench.readers.cut_slow(now)
            assert await stream.inbox.get() is stream
            stream.take()
        assert bench.cut == []

    asyncio.run(body())


def test_bytes_that_wait_are_bounded_and_counted_through_merges() -> None:
    bench = Bench(max_bytes=10_000)
    stream = bench.stream("deaf")
    for _ in range(3 * MAX_PENDING):
        say(stream)
    assert stream.inbox.pending == 3 * MAX_PENDING * 7
    bench.readers.cut_slow(0)
    assert bench.cut == []
    stream.take()
    assert stream.inbox.pending == 0
    say(stream, "x" * 10_000)
    bench.readers.cut_slow(1)
    assert bench.cut == ["deaf"]
