"""The two POST endpoints that generate: `/v1/chat/completions` and `/v1/completions`.

The status line waits for the request's first event, so that what the tokenizer or the scheduler refuses gets
a real 4xx. While it waits, and ever after, a client that leaves cancels its request at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.routing import BaseRoute, Route

from stretto.roles.gateway import http
from stretto.roles.gateway.answers import Answer
from stretto.roles.gateway.apis import answer_to
from stretto.roles.gateway.door import Door
from stretto.roles.gateway.faults import Refused
from stretto.roles.gateway.job import Job
from stretto.roles.gateway.parts import Parts
from stretto.roles.gateway.stream import HungUp, Inbox, Stream, gather


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
            await self._generate(job, receive, send)
        except Refused as refused:
            await http.refuse(send, receive, refused.fault)
        except HungUp:
            return

    async def _generate(self, job: Job, receive: http.Receive, send: http.Send) -> None:
        inbox = Inbox()
        stream = self._door.submit(job, inbox)
        watcher = asyncio.create_task(http.hang_up_on_disconnect(receive, inbox))
        try:
            answer = answer_to(job, stream.uid, self._model)
            await (_streamed if job.stream else _whole)(stream, answer, send)
        finally:
            watcher.cancel()
            self._door.leave(stream)


async def _whole(stream: Stream, answer: Answer, send: http.Send) -> None:
    await http.answer(send, 200, answer.whole(await gather(stream)))


async def _streamed(stream: Stream, answer: Answer, send: http.Send) -> None:
    """Send each event as it comes; those that came while the client was busy go out in one piece."""
    await stream.inbox.get()
    events, ended = stream.take(), stream.ended
    if fault := events[-1].fault:
        raise Refused(fault)
    await http.start_stream(send)
    data = answer.opening(events)
    while True:
        data += b"".join([answer.event(event) for event in events])
        if data or ended:
            await http.write(send, data, more=not ended)
        if ended:
            return
        await stream.inbox.get()
        events, ended, data = stream.take(), stream.ended, b""
