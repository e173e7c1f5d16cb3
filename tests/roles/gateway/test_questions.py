"""Every question is settled exactly once."""

from __future__ import annotations

import asyncio

import pytest

from stretto.roles import messages as m
from stretto.roles.gateway.faults import Refused
from stretto.roles.gateway.questions import Questions, Reply

REPLY = m.Detokenized(7, "Hi")
FAULT = m.Fault(503, "gone")


async def ask(questions: Questions, tokenizer: int = 0) -> asyncio.Task[Reply]:
    task = asyncio.create_task(questions.wait(7, tokenizer))
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


def test_a_tokenizer_takes_only_its_own_along() -> None:
    async def body() -> None:
        questions = Questions()
        task = await ask(questions, tokenizer=1)
        questions.lose(0, FAULT)
        assert not task.done()
        questions.lose(1, FAULT)
        with pytest.raises(Refused):
            await task

    asyncio.run(body())


def test_all_are_lost_at_the_end() -> None:
    async def body() -> None:
        questions = Questions()
        task = await ask(questions, tokenizer=1)
        questions.lose(None, FAULT)
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
