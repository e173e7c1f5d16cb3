"""The WebSocket `/v1/stream`: many concurrent requests on one socket, token deltas as they come.

Frames are text, one JSON object each. A server with an API key wants it in the `Authorization` header of the
handshake, as `Bearer KEY`; nowhere else, because addresses end up in logs.

The client sends:

    {"type": "generate", "id": "a", "request": {...}, "resumable": true}
        `id` is the client's own name for the request: a string, unique among its live ones. `request` is the
        body of /v1/chat/completions (it has `messages`) or of /v1/completions (it has `prompt`), except that
        `stream` defaults to true. `resumable` may be left out.
    {"type": "resume", "id": "a", "stream": "...", "request": {...}, "tokens": [7, 9], "ends": [...]}
        Goes on with a resumable request after its socket was lost; see below.
    {"type": "cancel", "id": "a"}
        Ends a request early: it is done with finish_reason "abort", unless it ended by itself meanwhile. An
        id that is not live is ignored, because the request may just have ended.

The server sends:

    {"type": "accepted", "id": "a", "stream": "...", "resume_seconds": 60}
        The first frame of a resumable request. `stream` is its handle, null where the server keeps nothing.
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
leaves the socket open. Closing the socket cancels all its requests; those that are resumable only if it is
closed with code 1000. The server pings every 20 seconds and closes a socket that does not answer within
another 20.

A resumable request outlives its socket by `resume_seconds`, whether it goes on or has ended. A client that
comes back, to any gateway of the server (one that is replaced closes its sockets with code 1012), sends
`resume` with the handle, the same `request`, and for each choice how many tokens it has: `index` of its last
delta and the tokens of that, told as `tokens` where `token_ids` were not asked for. The last choices
may be left out where nothing of them has come. Choices that have ended are told in `ends`, as {"choice": 0,
"finish_reason", "stop_reason", "usage"} from their last deltas, which have `usage` for that (and
`prompt_token_ids`, where asked for, which `done` then leaves empty). Deltas go on from there, nothing is lost
and nothing repeated. A
stream that is not found ends with the code "stream_not_found". Whoever has the handle has the stream, and a
socket that had it before is told nothing more.

A `generate` that got no `accepted` before the socket was lost may simply be sent again: if it was taken in
after all, nobody hears of it, and it ends when its retention time is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import orjson
from msgspec.structs import replace
from starlette.routing import BaseRoute, WebSocketRoute

from stretto.roles.gateway import frames, http
from stretto.roles.gateway.answers import shown
from stretto.roles.gateway.claim import Claim, retained
from stretto.roles.gateway.door import Door
from stretto.roles.gateway.faults import Refused, refusal
from stretto.roles.gateway.frames import Generate, Objection, Resume
from stretto.roles.gateway.intake import Intake
from stretto.roles.gateway.job import Job
from stretto.roles.gateway.parts import Parts
from stretto.roles.gateway.sessions import Sessions
from stretto.roles.gateway.stream import HungUp, Inbox, Stream, merge
from stretto.roles.messages import Event
from stretto.roles.metrics import Meter

GOODBYE, LOST, RESTART = 1000, 1006, 1012
"""Codes that a socket is closed with (RFC 6455, section 7.4)."""
STREAMS_PER_TURN = 64
"""That speak on one socket before others get their turn."""


def routes(parts: Parts) -> list[BaseRoute]:
    """The one socket."""
    return [WebSocketRoute("/v1/stream", Socket(parts.door, parts.intake, parts.meter, parts.sessions))]


class Call:
    """One live request of a socket."""

    __slots__ = ("greeting", "held", "id", "stream")

    def __init__(self, id: str, stream: Stream) -> None:
        self.id, self.stream = id, stream
        self.held: dict[int, list[Event]] = {}
        """What the last frame is made of, by position: the whole answer, or, of one that is streamed, the
        ends."""
        self.greeting: dict[str, Any] | None = None
        """A frame that goes before all others."""


class Socket:
    """An ASGI application: the endpoint, which makes a `Session` of every connection."""

    def __init__(self, door: Door, intake: Intake, meter: Meter, sessions: Sessions) -> None:
        self._door, self._intake, self._meter, self._sessions = door, intake, meter, sessions

    async def __call__(self, scope: http.Scope, receive: http.Receive, send: http.Send) -> None:
        await receive()  # the handshake
        await send({"type": "websocket.accept"})
        self._meter.add("connections_live")
        abort = http.aborter(scope)
        session = Session(self._door, self._intake, send, self._sessions.resume_seconds, abort)
        try:
            with self._sessions.open(session.retire):
                if self._sessions.retiring:
                    await session.retire()
                await session.run(receive)
        finally:
            self._meter.add("connections_live", -1)


class Session:
    """One socket: a reader that starts and cancels requests, a writer that sends what they bring.

    A client that does not read stops the writer, whose streams then keep their text merged, and the reader as
    soon as it has an error to report; neither takes memory.
    """

    def __init__(
        self,
        door: Door,
        intake: Intake,
        send: http.Send,
        resume_seconds: float = 0.0,
        abort: Callable[[], object] = lambda: None,
    ) -> None:
        self._door, self._intake, self._send = door, intake, send
        self._resume_seconds = resume_seconds
        self._inbox = Inbox(abort)
        self._calls: dict[str, Call] = {}
        self._by_stream: dict[Stream, Call] = {}
        self._retiring = False

    async def run(self, receive: http.Receive) -> None:
        """Serve until the socket closes."""
        code = LOST
        try:
            async with asyncio.TaskGroup() as group:
                writer = group.create_task(self._write())
                code = await self._read(receive)
                writer.cancel()
        finally:
            for call in self._calls.values():
                self._part(call.stream, code)

    def _part(self, stream: Stream, code: int) -> None:
        """The socket is gone; a stream that can be resumed waits for the client, unless it said goodbye."""
        if stream.job.retain and code != GOODBYE and not self._inbox.was_cut:
            self._door.detach(stream)
        else:
            self._door.leave(stream)

    async def retire(self) -> None:
        """Another gateway takes over: send the client there, as soon as all it has here can be resumed."""
        self._retiring = True
        await self._close_if_free()

    async def _close_if_free(self) -> None:
        if self._retiring and all(call.stream.job.retain for call in self._calls.values()):
            with contextlib.suppress(OSError, RuntimeError):  # it is closing as it is
                await self._send({"type": "websocket.close", "code": RESTART, "reason": "service restart"})

    async def _read(self, receive: http.Receive) -> int:
        """Obey until the socket closes; the code it is closed with.

        What came in one piece may be hundreds of frames: other sockets get their turn after each.
        """
        while (message := await receive())["type"] != "websocket.disconnect":
            try:
                self._obey(message.get("text"))
            except Objection as objection:
                await self._put(frames.error(objection.id, objection.fault))
            await asyncio.sleep(0)
        return int(message.get("code", LOST))

    async def _write(self) -> None:
        with contextlib.suppress(HungUp):
            for turn in itertools.count(1):
                stream = await self._inbox.get()
                if call := self._by_stream.get(stream):
                    for frame in self._frames(call):
                        await self._put(frame)
                if self._retiring:
                    await self._close_if_free()
                if turn % STREAMS_PER_TURN == 0:
                    await asyncio.sleep(0)  # nothing above waits while there is something to say

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
            match frame:
                case Generate():
                    self._start(frame)
                case Resume():
                    self._resume(frame)
                case _ if call := self._calls.get(frame.id):
                    self._door.cancel(call.stream)
        except Refused as refused:
            raise Objection(frame.id, refused.fault) from None

    def _start(self, frame: Generate) -> None:
        self._check_free(frame.id)
        job = self._intake.either(frame.request)
        kept = frame.resumable and self._resume_seconds > 0
        stream = self._door.submit(retained(job, self._resume_seconds) if kept else job, self._inbox)
        call = self._take(frame.id, stream)
        if frame.resumable:
            handle = str(Claim.of(stream)) if kept else None
            call.greeting = frames.accepted(call.id, handle, self._resume_seconds)
            self._inbox.put(stream)

    def _resume(self, frame: Resume) -> None:
        self._check_free(frame.id)
        claim = Claim.parse(frame.stream)
        job = replace(self._intake.either(frame.request), retain=self._resume_seconds)
        received, ended = frames.progress(frame, job, claim.uid)
        if received:
            self._take(frame.id, self._door.resume(job, claim, received, self._inbox)).held = ended
        else:
            stream = Stream(claim.uid, job, self._inbox, claim.arrived)
            stream.ended = True
            self._take(frame.id, stream).held = ended
            self._inbox.put(stream)

    def _check_free(self, id: str) -> None:
        if id in self._calls:
            raise refusal("A request of this id is live on this socket.", "id", "duplicate_id")

    def _take(self, id: str, stream: Stream) -> Call:
        call = self._calls[id] = self._by_stream[stream] = Call(id, stream)
        return call

    # Frames to the client.

    def _frames(self, call: Call) -> Iterator[dict[str, Any]]:
        """What a call has to say now; forgets it when it has ended, or moved away."""
        events, ended = call.stream.take(), call.stream.ended
        if ended or call.stream.moved:
            del self._calls[call.id], self._by_stream[call.stream]
        if call.greeting is not None:
            greeting, call.greeting = call.greeting, None
            yield greeting
        for event in events:
            yield from _told(call, event)
        if ended and not (events and events[-1].fault):
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
