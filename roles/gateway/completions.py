"""The two POST endpoints that generate: `/v1/chat/completions` and `/v1/completions`.

The status line waits for the request's first event, so that what the tokenizer or the scheduler refuses gets
a real 4xx. While it waits, and ever after, a client that leaves cancels its request at once.
"""

from __future__ import annotations

from collections.abc import Callable

from starlette.routing import BaseRoute, Route

from stretto.roles.gateway import http
from stretto.roles.gateway.apis import answer_to
from stretto.roles.gateway.door import Door
from stretto.roles.gateway.faults import Refused
from stretto.roles.gateway.job import Job
from stretto.roles.gateway.parts import Parts
from stretto.roles.gateway.stream import HungUp, gather
from stretto.roles.gateway.submitting import speak, submitted


def routes(parts: Parts) -> list[BaseRoute]:
    """Chats and completions."""
    config = parts.config
    chat, text = (
        Completions(parts.door, read, config.served_model_name, config.max_body_bytes)
        for read in (parts.intake.chat, parts.intake.text)
    )
    return [
        Route("/v1/chat/completions", chat, methods=["POST"]),
        Route("/v1/completions", text, methods=["POST"]),
    ]


class Completions:
    """An ASGI application: one generating endpoint."""

    def __init__(self, door: Door, read: Callable[[bytes], Job], model: str, max_body_bytes: int) -> None:
        self._door, self._read = door, read
        self._model, self._max_body_bytes = model, max_body_bytes

    async def __call__(self, scope: http.Scope, receive: http.Receive, send: http.Send) -> None:
        try:
            job = self._read(await http.read_body(scope, receive, self._max_body_bytes))
            await self._generate(job, scope, receive, send)
        except Refused as refused:
            await http.refuse(send, receive, refused.fault)
        except HungUp:
            return

    async def _generate(self, job: Job, scope: http.Scope, receive: http.Receive, send: http.Send) -> None:
        async with submitted(self._door, [job], scope, receive) as (_, (stream,)):
            answer = answer_to(job, stream.uid, self._model)
            if job.stream:
                await speak(stream, answer, send)
            else:
                await http.answer(send, 200, answer.whole(await gather(stream)))
