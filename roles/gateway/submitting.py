"""Live requests, for as long as a client of HTTP waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from stretto.roles.gateway import http
from stretto.roles.gateway.door import Door
from stretto.roles.gateway.faults import Refused
from stretto.roles.gateway.job import Job
from stretto.roles.gateway.stream import Inbox, Stream
from stretto.roles.messages import Event


@asynccontextmanager
async def submitted(
    door: Door, jobs: Sequence[Job], scope: http.Scope, receive: http.Receive
) -> AsyncIterator[tuple[Inbox, list[Stream]]]:
    """Submit jobs for one HTTP client: the inbox tells when a stream has something, or raises `HungUp`.

    What still lives when the block is left is cancelled. Raises `Refused` where the door does, at the first
    job or at none.
    """
    inbox, streams = Inbox(http.aborter(scope)), list[Stream]()
    watcher = asyncio.create_task(http.hang_up_on_disconnect(receive, inbox))
    try:
        for job in jobs:
            streams.append(door.submit(job, inbox, follows=bool(streams)))
        yield inbox, streams
    finally:
        watcher.cancel()
        for stream in streams:
            door.leave(stream)


class Answer(Protocol):
    """Writes what a request says as server-sent events."""

    def opening(self, events: list[Event]) -> bytes:
        """What comes before the first events, which are given."""

    def event(self, event: Event) -> bytes:
        """An event of the request; the last one ends the stream."""


async def speak(stream: Stream, answer: Answer, send: http.Send) -> None:
    """Send each event as it comes; those that came while the client was busy go out in one piece.

    The status line waits for the first event, so that a refusal gets a status of its own.
    Raises `Refused` and `HungUp`.
    """
    await stream.inbox.get()
    events, ended = stream.take(), stream.ended
    if fault := events[0].fault:
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
