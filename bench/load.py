"""The load generator: one asyncio process that plays sessions through a wire, in a closed or an open loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from stretto.bench.answer import Answer
from stretto.bench.wire import Wire
from stretto.bench.workload import Prompt, Session, Turn

NO_IDS = "the server sent no token ids, which conversations are made of"

Told = Callable[[Answer], object]


class Asking(NamedTuple):
    """What all requests have in common: greedy, as long as they are told, streamed."""

    model: str | None
    token_ids: bool
    """Ask for `return_token_ids`, so that tokens without visible text are seen when they come."""

    def body(self, prompt: Prompt, tokens: int) -> dict[str, Any]:
        """A body of `/v1/completions`."""
        body: dict[str, Any] = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        if self.token_ids:
            body["return_token_ids"] = True
        return body if self.model is None else {"model": self.model, **body}


class Load:
    """Plays sessions; `told` hears of every answer."""

    def __init__(self, wire: Wire, asking: Asking, told: Told) -> None:
        self._wire, self._asking, self._told = wire, asking, told

    async def closed(self, sessions: Sequence[Session], concurrency: int) -> None:
        """So many sessions at a time, the next one as soon as one has ended."""
        waiting = iter(sessions)

        async def work() -> None:
            for session in waiting:
                await self._play(session, None)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, len(sessions))):
                group.create_task(work())

    async def open(self, sessions: Sequence[Session], arrivals: Sequence[float]) -> None:
        """Each session begins at its time, in seconds from now, whatever became of those before it."""
        start = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for session, arrival in zip(sessions, arrivals, strict=True):
                due = start + arrival
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                group.create_task(self._play(session, due))

    async def _play(self, session: Session, due: float | None) -> None:
        """The turns of one session, one after the other, until one fails."""
        said: list[int] = []
        for place, turn in enumerate(session):
            prompt = _following(said, turn)
            answer = await self._wire.ask(self._asking.body(prompt, turn.output_tokens))
            if due is not None and place == 0:
                answer.late = answer.sent - due
            last = place == len(session) - 1
            if not (last or answer.error or answer.token_ids):
                answer.error = NO_IDS
            self._told(answer)
            if answer.error or last:
                return
            said = [*prompt, *answer.token_ids] if isinstance(prompt, list) else said


def _following(said: list[int], turn: Turn) -> Prompt:
    return said + turn.prompt if said and isinstance(turn.prompt, list) else turn.prompt
