"""Every question is settled exactly once."""

from __future__ import annotations

import asyncio

import pytest

from stretto.roles import messages as m
from stretto.roles.gateway.faults import Refused
from stretto.roles.gateway.questions import Questions, Reply

QUESTION = m.Detokenize(7, 0, [1])
REPLY = m.Detokenized(7, "Hi")
FAULT = m.Fault(503, "gone")


async def ask(questions: Questions, tokenizer: int = 0) -> asyncio.Task[Reply]:
    task = asyncio.create_task(questions.wait(QUESTION, tokenizer))
    await asyncio.sleep(0)
    return task


def test_a_reply_or_a_refusal_settles_it() -> None:
    async def body() -> None:
        questions = Questions()
        task = await ask(questions)
        assert questions.settle(7, REPLY)
        assert await task is REPLY
        task = await ask(questions)
        assert questions.settle(7, FAULT)
        with pytest.raises(Refused) as refused:
            await task
        assert refused.value.fault is FAULT
        assert len(questions) == 0

    asyncio.run(body())


def test_what_comes_second_or_to_nobody_is_dropped() -> None:
    async def body() -> None:
        questions = Questions()
        assert not questions.settle(7, REPLY)
        task = await ask(questions)
        assert questions.settle(7, REPLY)
        assert questions.settle(7, FAULT)
        assert await task is REPLY
        assert not questions.settle(7, FAULT)

    asyncio.run(body())


def test_what_a_dead_tokenizer_was_asked_is_asked_again() -> None:
    async def body() -> None:
        questions = Questions()
        task = await ask(questions, tokenizer=1)
        assert questions.lost(0, 0) == []
        assert questions.lost(1, 0) == [QUESTION]
        assert questions.settle(7, REPLY)
        assert questions.lost(1, 0) == []
        assert await task is REPLY

    asyncio.run(body())


def test_a_question_that_kills_twice_is_poison() -> None:
    async def body() -> None:
        questions = Questions()
        task = await ask(questions)
        assert questions.lost(0, 7) == [QUESTION]
        assert questions.lost(0, 7) == []
        with pytest.raises(Refused) as refused:
            await task
        assert refused.value.fault.code == "poison_request"

    asyncio.run(body())


def test_all_fail_at_the_end() -> None:
    async def body() -> None:
        questions = Questions()
        task = await ask(questions, tokenizer=1)
        questions.fail(FAULT)
        with pytest.raises(Refused):
            await task

    asyncio.run(body())


def test_who_stops_waiting_leaves_nothing() -> None:
    async def body() -> None:
        questions = Questions()
        task = await ask(questions)
        task.cancel()
        await asyncio.wait([task])
        assert len(questions) == 0

    asyncio.run(body())
