"""Streams keep what is not taken, in bounds; inboxes tell of each once."""

from __future__ import annotations

import asyncio
import string

import pytest
from msgspec.structs import replace

from stretto.roles.gateway.faults import Refused
from stretto.roles.gateway.job import Job
from stretto.roles.gateway.stream import MAX_PENDING, HungUp, Inbox, Stream, gather, merge
from stretto.roles.messages import Event, Fault, SamplingParams, TokenInfo, Usage


def stream_of(inbox: Inbox, uid: int = 1) -> Stream:
    return Stream(uid, Job(params=SamplingParams(), prompts=("Hi",), stream=True), inbox, arrived=0.0)


def delta(index: int, text: str = "a") -> Event:
    return Event(1, index, text, bytes([index % 256, 0, 0, 0]))


def test_what_is_taken_is_gone() -> None:
    stream = stream_of(Inbox())
    stream.put(delta(0))
    stream.put(delta(1))
    assert stream.take() == [delta(0), delta(1)]
    assert stream.take() == []


def test_merging_says_the_same_in_one_event() -> None:
    end = Event(1, 2, "c", b"\2\0\0\0", "stop", "c", Usage(5, 3), None, b"p")
    assert merge([delta(0, "a"), delta(1, "b"), end]) == Event(
        1, 0, "abc", b"\0\0\0\0\1\0\0\0\2\0\0\0", "stop", "c", Usage(5, 3), None, b"p"
    )


def test_a_slow_reader_keeps_its_text_and_no_more() -> None:
    stream = stream_of(Inbox())
    text = string.ascii_letters * 10
    for i, letter in enumerate(text):
        stream.put(delta(i, letter))
        assert len(stream.pending) <= MAX_PENDING
    whole = merge(stream.take())
    assert (whole.index, whole.text, len(whole.token_ids)) == (0, text, 4 * len(text))


def test_merging_keeps_what_the_first_event_says_of_the_prompt() -> None:
    a, b = TokenInfo(1, "a", b"a", -1.0, 1, []), TokenInfo(2, "b", b"b", -2.0, 1, [])
    first = Event(1, 0, "a", usage=Usage(5, 0), logprobs=[a], prompt_logprobs=[None, b], prompt_text="He")
    second = Event(1, 1, "b", logprobs=[b], cumulative_logprob=-3.0)
    merged = merge([first, second])
    assert (merged.logprobs, merged.prompt_logprobs, merged.prompt_text) == ([a, b], [None, b], "He")
    assert (merged.usage, merged.cumulative_logprob) == (Usage(5, 0), -3.0)


def test_a_slow_reader_keeps_the_sequences_apart() -> None:
    stream = stream_of(Inbox())
    for i in range(2 * MAX_PENDING):
        stream.put(replace(delta(i // 2), uid=1 + i % 2, text="ab"[i % 2]))
    taken = stream.take()
    assert len(taken) <= MAX_PENDING + 1
    a, b = (merge([event for event in taken if event.uid == uid]) for uid in (1, 2))
    assert (a.text, b.text) == ("a" * MAX_PENDING, "b" * MAX_PENDING)


def test_a_failure_is_the_last_event_however_much_is_pending() -> None:
    stream = stream_of(Inbox())
    for i in range(MAX_PENDING):
        stream.put(replace(delta(i), uid=1 + i % 2))
    stream.put(replace(delta(0), uid=1, finish_reason="error", fault=Fault(503, "gone")))
    assert stream.take()[-1].fault == Fault(503, "gone")


def test_gathering_waits_for_every_sequence() -> None:
    async def body() -> None:
        stream = stream_of(Inbox())
        said = asyncio.create_task(gather(stream))
        for i, uid in enumerate([2, 1, 2]):
            stream.put(replace(delta(i, "abc"[i]), uid=uid))
            stream.ended = i == 2
            await asyncio.sleep(0)
        assert {position: event.text for position, event in (await said).items()} == {0: "b", 1: "ac"}

    asyncio.run(body())


def test_gathering_raises_the_fault_of_any() -> None:
    async def body() -> None:
        stream = stream_of(Inbox())
        stream.put(delta(0))
        stream.put(replace(delta(0), uid=2, finish_reason="error", fault=Fault(503, "gone")))
        with pytest.raises(Refused) as caught:
            await gather(stream)
        assert caught.value.fault.message == "gone"

    asyncio.run(body())


def test_an_inbox_names_each_stream_once_per_visit() -> None:
    async def body() -> None:
        inbox = Inbox()
        a, b = stream_of(inbox, 1), stream_of(inbox, 2)
        for stream, index in [(b, 0), (a, 0), (b, 1)]:
            stream.put(delta(index))
        assert await inbox.get() is b
        assert len(b.take()) == 2
        b.put(delta(2))
        assert [await inbox.get(), await inbox.get()] == [a, b]

    asyncio.run(body())


def test_hanging_up_ends_the_wait_for_good() -> None:
    async def body() -> None:
        inbox = Inbox()
        waiting = asyncio.create_task(inbox.get())
        await asyncio.sleep(0)
        inbox.hang_up()
        for attempt in (waiting, inbox.get()):
            with pytest.raises(HungUp):
                await attempt

    asyncio.run(body())
