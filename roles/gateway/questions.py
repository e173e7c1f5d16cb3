"""What the gateway asks a tokenizer and waits for: texts to split, ids to join, what the cache holds."""

from __future__ import annotations

import asyncio

from stretto.roles import messages as m
from stretto.roles.gateway import faults
from stretto.roles.gateway.faults import Refused

Reply = m.Tokenized | m.Detokenized | m.CacheReport
Asking = m.Tokenize | m.Detokenize | m.CacheQuery
MAX_STRIKES = 2
"""Processes that may die at work on one request before it is taken for the cause."""


class Question:
    """One that waits for its reply."""

    def __init__(self, message: Asking, tokenizer: int) -> None:
        self.message, self.tokenizer = message, tokenizer
        self.reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.strikes = 0


class Questions:
    """Open questions, by uid. Each is settled by a reply or a refusal; it is asked again after a death."""

    def __init__(self) -> None:
        self._open: dict[int, Question] = {}

    def __len__(self) -> int:
        return len(self._open)

    async def wait(self, message: Asking, tokenizer: int) -> Reply:
        """The reply to a question that has just been sent. Raises `Refused`; forgets it in any case."""
        question = self._open[message.uid] = Question(message, tokenizer)
        try:
            return await question.reply
        finally:
            del self._open[message.uid]

    def settle(self, uid: int, reply: Reply | m.Fault) -> bool:
        """Hand over what came; False where nobody asked, or nobody waits any more."""
        if uid not in self._open:
            return False
        _resolve(self._open[uid].reply, reply)
        return True

    def lost(self, tokenizer: int, suspect: int) -> list[Asking]:
        """What to ask a tokenizer again that died, at work on `suspect`, which fails the second time."""
        if question := self._open.get(suspect):
            question.strikes += 1
            if question.strikes >= MAX_STRIKES:
                _resolve(question.reply, faults.POISON)
        held = [question for question in self._open.values() if question.tokenizer == tokenizer]
        return [question.message for question in held if not question.reply.done()]

    def fail(self, fault: m.Fault) -> None:
        """End all that are open."""
        for question in self._open.values():
            _resolve(question.reply, fault)


def _resolve(future: asyncio.Future[Reply], reply: Reply | m.Fault) -> None:
    if future.done():
        return
    if isinstance(reply, m.Fault):
        future.set_exception(Refused(reply))
    else:
        future.set_result(reply)
