"""OpenAI's Responses API.

What is stored is stored in this gateway's memory; see `responses_store` for how much.
"""

from __future__ import annotations

import asyncio
import secrets

import orjson
from starlette.routing import BaseRoute, Route

from stretto.roles.gateway import http
from stretto.roles.gateway import responses_bodies as bodies
from stretto.roles.gateway.faults import Refused
from stretto.roles.gateway.job import Job
from stretto.roles.gateway.parts import Parts
from stretto.roles.gateway.reader import Reader
from stretto.roles.gateway.responses_answers import ResponseAnswer
from stretto.roles.gateway.responses_store import Record, Store
from stretto.roles.gateway.responses_stored import Stored, follow
from stretto.roles.gateway.stream import HungUp, Inbox, Stream, gather
from stretto.roles.gateway.submitting import speak, submitted
from stretto.roles.messages import Event


def routes(parts: Parts) -> list[BaseRoute]:
    """All of them."""
    store = Store()
    return [
        Route("/v1/responses", Create(parts, store), methods=["POST"]),
        *Stored(store).routes(),
    ]


class Create:
    """An ASGI application: `POST /v1/responses`."""

    def __init__(self, parts: Parts, store: Store) -> None:
        config = parts.config
        self._door, self._store = parts.door, store
        self._model, self._max_body_bytes = config.served_model_name, config.max_body_bytes
        self._reader = Reader(bodies.ResponsesBody, config.allow_unknown_fields)
        self._tasks: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: http.Scope, receive: http.Receive, send: http.Send) -> None:
        try:
            body = self._reader.read(await http.read_body(scope, receive, self._max_body_bytes))
            bodies.check(body, self._model)
            await self._create(body, scope, receive, send)
        except Refused as refused:
            await http.refuse(send, receive, refused.fault)
        except HungUp:
            return

    async def _create(
        self, body: bodies.ResponsesBody, scope: http.Scope, receive: http.Receive, send: http.Send
    ) -> None:
        previous = body.previous_response_id
        earlier = [] if previous is None else self._store.previous(previous)
        id = f"resp_{secrets.token_hex(24)}"
        job = bodies.job(body, id, earlier)
        answer = ResponseAnswer(id, body, job, self._model)
        record = Record(answer.object(), bodies.items(body, id), [*earlier, *bodies.turns(body)])
        if body.background:
            self._start(job, answer, record, bool(body.stream))
            if body.stream:
                await follow(record, 0, receive, send)
            else:
                await http.answer(send, 200, orjson.dumps(record.response))
            return
        async with submitted(self._door, [job], scope, receive) as (_, (stream,)):
            await (speak if body.stream else _whole)(stream, answer, send)
        if body.store is not False:
            _conclude(record, answer)
            self._store.put(record)

    # In the background.

    def _start(self, job: Job, answer: ResponseAnswer, record: Record, streamed: bool) -> None:
        inbox = record.inbox = Inbox()
        stream = self._door.submit(job, inbox)
        if streamed:
            record.events = answer.first_events()
        record.response = answer.object()
        self._store.put(record)
        record.task = asyncio.create_task(self._run(stream, answer, record))
        self._tasks.add(record.task)
        record.task.add_done_callback(self._tasks.discard)

    async def _run(self, stream: Stream, answer: ResponseAnswer, record: Record) -> None:
        try:
            while not record.ended:
                await stream.inbox.get()
                for event in stream.take():
                    self._progress(answer, record, event)
        except HungUp:
            self._progress(answer, record, Event(stream.uid, 0, "", finish_reason="abort"))
        finally:
            self._door.leave(stream)
        _conclude(record, answer)
        self._store.measure(record)

    def _progress(self, answer: ResponseAnswer, record: Record, event: Event) -> None:
        if record.events is None:
            answer.add(event)
        else:
            news = answer.next_events(event)
            record.events += news
            self._store.grow(record, sum(map(len, news)))
        record.response = answer.object()
        record.ring()


def _conclude(record: Record, answer: ResponseAnswer) -> None:
    """The conversation goes on from the answer."""
    record.response = answer.object()
    record.turns = [*record.turns, {"role": "assistant", "content": answer.text}]


async def _whole(stream: Stream, answer: ResponseAnswer, send: http.Send) -> None:
    (event,) = (await gather(stream)).values()
    answer.add(event)
    await http.answer(send, 200, orjson.dumps(answer.object()))
