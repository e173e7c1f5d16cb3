"""The WebSocket `/v1/stream`: many concurrent requests on one socket, token deltas as they come.

Frames are text, one JSON object each. A server with an API key wants it in the `Authorization` header of the
handshake, as `Bearer KEY`; nowhere else, because addresses end up in logs.

The client sends:

    {"type": "generate", "id": "a", "request": {...}}
        `id` is the client's own name for the request: a string, unique among its live ones. `request` is the
        body of /v1/chat/completions (it has `messages`) or of /v1/completions (it has `prompt`), except that
        `stream` defaults to true.
    {"type": "cancel", "id": "a"}
        Ends a request early: it is done with finish_reason "abort", unless it ended by itself meanwhile. An
        id that is not live is ignored, because the request may just have ended.

The server sends:

    {"type": "delta", "id": "a", "index": 7, "text": "..."}
        The next piece of text; `index` tells how many tokens came before it. `token_ids`, `logprobs` and, on
        the first, `prompt_logprobs` with it where the request asked for them. None where `stream` is false.
        Where the answer has several choices (`n`, or several prompts), `choice` tells which, and the last
        delta of each has its `finish_reason` and `stop_reason`.
    {"type": "done", "id": "a", "finish_reason": "stop", "stop_reason": null, "usage": {...}}
        The end; where `stream` is false, with the whole `text`, and what else a delta may have.
        `prompt_token_ids` where the request has return_token_ids. Where the answer has several choices, all
        but `usage` stands in `choices`, a list of {"choice": 0, "finish_reason": "stop", ...}.
    {"type": "error", "id": "a", "status": 400, "error": {"message", "type", "param", "code"}}
        The end, or the refusal of a frame; `id` is null where the frame did not tell. `status` is what HTTP
        would have answered. The code "duplicate_id" refuses the newcomer and leaves the live request of that
        id alone.

Log-probabilities are a list with an entry for each token, whichever kind of request it is:

    {"id": 5, "token": "...", "bytes": [...], "logprob": -0.5, "rank": 1, "top": [...]}

`top` has the likeliest, without a rank. The first token of a prompt is null.

Every accepted `generate` ends in exactly one `done` or `error`. A frame that is refused (malformed, binary)
leaves the socket open. Closing the socket cancels all its requests. The server pings every 20 seconds and
closes a socket that does not answer within another 20.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import orjson
from starlette.routing import BaseRoute, WebSocketRoute

from stretto.roles.gateway import frames, http
from stretto.roles.gateway.answers import shown
from stretto.roles.gateway.door import Door
from stretto.roles.gateway.faults import Refused, refusal
from stretto.roles.gateway.frames import Generate, Objection
from stretto.roles.gateway.intake import Intake
from stretto.roles.gateway.job import Job
from stretto.roles.gateway.parts import Parts
from stretto.roles.gateway.stream import Inbox, Stream, merge
from stretto.roles.messages import Event
from stretto.roles.metrics import Meter


def routes(parts: Parts) -> list[BaseRoute]:
    """The one socket."""
    return [WebSocketRoute("/v1/stream", Socket(parts.door, parts.intake, parts.meter))]


class Call:
    """One live request of a socket."""

    __slots__ = ("held", "id", "stream")

    def __init__(self, id: str, stream: Stream) -> None:
        self.id, self.stream = id, stream
        self.held: dict[int, list[Event]] = {}
        """What the last frame is made of, by position: the whole answer, or, of one that is streamed, the
        ends."""


class Socket:
    """An ASGI application: the endpoint, which makes a `Session` of every connection."""

    def __init__(self, door: Door, intake: Intake, meter: Meter) -> None:
        self._door, self._intake, self._meter = door, intake, meter

    async def __call__(self, scope: http.Scope, receive: http.Receive, send: http.Send) -> None:
        await receive()  # the handshake
        await send({"type": "websocket.accept"})
        self._meter.add("connections_live")
        try:
            await Session(self._door, self._intake, send).run(receive)
        finally:
            self._meter.add("connections_live", -1)


class Session:
    """One socket: a reader that starts and cancels requests, a writer that sends what they bring.

    A client that does not read stops the writer, whose streams then keep their text merged, and the reader as
    soon as it has an error to report; neither takes memory.
    """

    def __init__(self, door: Door, intake: Intake, send: http.Send) -> None:
        self._door, self._intake, self._send = door, intake, send
        self._inbox = Inbox()
        self._calls: dict[str, Call] = {}
        self._by_uid: dict[int, Call] = {}

    async def run(self, receive: http.Receive) -> None:
        """Serve until the socket closes."""
        try:
            async with asyncio.TaskGroup() as group:
                writer = group.create_task(self._write())
                await self._read(receive)
                writer.cancel()
        finally:
            for call in self._calls.values():
                self._door.leave(call.stream)

    async def _read(self, receive: http.Receive) -> None:
        while (message := await receive())["type"] != "websocket.disconnect":
            try:
                self._obey(message.get("text"))
            except Objection as objection:
                await self._put(frames.error(objection.id, objection.fault))

    async def _write(self) -> None:
        while True:
            stream = await self._inbox.get()
            for frame in self._frames(self._by_uid[stream.uid]):
                await self._put(frame)

    async def _put(self, frame: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the client is gone, as `receive` is about to say
            await self._send({"type": "websocket.send", "text": orjson.dumps(frame).decode()})

    # Frames from the client.

    def _obey(self, text: str | None) -> None:
        """Act on a frame. Raises `Objection`."""
        if text is None:
            raise Objection(None, refusal("Frames are text, not binary.").fault)
        frame = frames.decode(text)
        try:
            if isinstance(frame, Generate):
                self._start(frame)
            elif call := self._calls.get(frame.id):
                self._door.cancel(call.stream)
        except Refused as refused:
            raise Objection(frame.id, refused.fault) from None

    def _start(self, frame: Generate) -> None:
        if frame.id in self._calls:
            raise refusal("A request of this id is live on this socket.", "id", "duplicate_id")
        job = self._intake.either(frame.request)
        call = Call(frame.id, self._door.submit(job, self._inbox))
        self._calls[call.id] = self._by_uid[call.stream.uid] = call

    # Frames to the client.

    def _frames(self, call: Call) -> Iterator[dict[str, Any]]:
        """What a call has to say now; forgets it when it has ended."""
        events, ended = call.stream.take(), call.stream.ended
        if ended:
            del self._calls[call.id], self._by_uid[call.stream.uid]
        for event in events:
            yield from _told(call, event)
        if ended and events[-1].fault is None:
            ends = {position: merge(held) for position, held in call.held.items()}
            yield frames.done(call.id, call.stream.job, ends)


def _told(call: Call, event: Event) -> Iterator[dict[str, Any]]:
    """The frames that one event makes; keeps what the last frame needs of it."""
    job, position = call.stream.job, call.stream.position(event)
    if event.fault is not None:
        yield frames.error(call.id, event.fault)
        return
    if not job.stream or event.finish_reason is not None:
        call.held.setdefault(position, []).append(event)
    if job.stream and _is_news(job, event):
        yield frames.delta(call.id, job, position, event)


def _is_news(job: Job, event: Event) -> bool:
    """Whether a delta would say anything."""
    told = job.return_token_ids or job.params.logprobs is not None
    if shown(event) or event.prompt_logprobs or (told and event.token_ids):
        return True
    return job.choices > 1 and event.finish_reason is not None
