"""Streams keep what is not taken, in bounds; inboxes tell of each once."""

from __future__ import annotations

import asyncio
import string

import pytest

from stretto.roles.gateway.job import Job
from stretto.roles.gateway.stream import MAX_PENDING, HungUp, Inbox, Stream, merge
from stretto.roles.messages import Event, SamplingParams, Usage


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
