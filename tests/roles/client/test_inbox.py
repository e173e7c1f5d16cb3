"""What has arrived and has not been read."""

from __future__ import annotations

import asyncio

import pytest

from stretto.roles.client.errors import StrettoError
from stretto.roles.client.frames import Choice, Delta, Done, TokenLogprob
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


def token(id: int) -> TokenLogprob:
    return TokenLogprob(id, chr(id), [id], -1.0, 1, [])


def test_choices_are_kept_apart_and_read_in_the_order_in_which_they_came() -> None:
    async def scenario() -> None:
        inbox = Inbox("1")
        inbox.put(Delta("1", "b", [7], 0, 1, [token(98)]))
        inbox.put(Delta("1", "a", [8], 0, 0, prompt_logprobs=[None, token(97)]))
        inbox.put(Delta("1", "c", [9], 1, 1, [token(99)]))
        assert await inbox.next() == Delta("1", "bc", [7, 9], 0, 1, [token(98), token(99)])
        inbox.put(Delta("1", "d", [5], 2, 1))
        assert await inbox.next() == Delta("1", "a", [8], prompt_logprobs=[None, token(97)])
        inbox.finish(Done("1", choices=[Choice("stop"), Choice("length", token_ids=[7, 9, 5])]))
        assert await inbox.next() == Delta("1", "d", [5], 2, 1)
        assert await inbox.next() is None
        first = await inbox.result()
        (second,) = first.others
        assert (first.text, first.finish_reason, first.prompt_logprobs) == ("a", "stop", [None, token(97)])
        assert (second.text, second.finish_reason, second.token_ids) == ("bcd", "length", [7, 9, 5])
        assert second.logprobs == [token(98), token(99)]

    asyncio.run(scenario())
