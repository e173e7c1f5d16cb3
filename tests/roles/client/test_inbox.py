"""What has arrived and has not been read."""

from __future__ import annotations

import asyncio

import pytest

from stretto.roles.client.errors import StrettoError
from stretto.roles.client.frames import Delta, Done
from stretto.roles.client.inbox import Inbox


def test_what_is_not_read_merges_and_is_read_once() -> None:
    async def scenario() -> None:
        inbox = Inbox("1")
        inbox.put(Delta("1", "a", [1]))
        inbox.put(Delta("1", "b", [2, 3]))
        assert await inbox.next() == Delta("1", "ab", [1, 2, 3])
        inbox.put(Delta("1", "c", [4]))
        inbox.finish(Done("1", "stop"))
        assert await inbox.next() == Delta("1", "c", [4])
        assert await inbox.next() is None
        assert (await inbox.result()).text == "abc"
        assert (await inbox.result()).token_ids == [1, 2, 3, 4]

    asyncio.run(scenario())


def test_a_reader_waits_for_what_comes() -> None:
    async def scenario() -> None:
        inbox = Inbox("1")
        reader = asyncio.create_task(inbox.next())
        await asyncio.sleep(0)
        assert not reader.done()
        inbox.put(Delta("1", "a"))
        assert await reader == Delta("1", "a")

    asyncio.run(scenario())


def test_an_error_comes_after_what_arrived_before_it_and_only_the_first_counts() -> None:
    async def scenario() -> None:
        inbox = Inbox("1")
        inbox.put(Delta("1", "a"))
        inbox.fail(StrettoError("first"))
        inbox.fail(StrettoError("second"))
        assert await inbox.next() == Delta("1", "a")
        with pytest.raises(StrettoError, match="first"):
            await inbox.next()
        with pytest.raises(StrettoError, match="first"):
            await inbox.result()

    asyncio.run(scenario())


def test_a_whole_answer_needs_no_deltas() -> None:
    async def scenario() -> None:
        inbox = Inbox("1")
        inbox.finish(Done("1", "length", text="abc", token_ids=[1]))
        completion = await inbox.result()
        assert (completion.text, completion.token_ids, completion.usage.total_tokens) == ("abc", [1], 0)

    asyncio.run(scenario())
