"""A live request as its client sees it: a `Stream` of events, and the `Inbox` that tells when there are some.

An inbox may serve many streams at once (a WebSocket's) or one (an HTTP request's).
"""

from __future__ import annotations

import asyncio
from collections import deque

import msgspec

from stretto.roles.messages import Event

MAX_PENDING = 64
"""Events a stream keeps apart for its reader before they are merged into one."""


class HungUp(Exception):
    """The client left: nobody is there to answer."""


class Inbox:
    """Where one client's connection hears that its streams have something."""

    def __init__(self) -> None:
        self._ready: deque[Stream] = deque()
        self._bell = asyncio.Event()
        self._closed = False

    def put(self, stream: Stream) -> None:
        """Queue a stream that has something to take, and had nothing before."""
        self._ready.append(stream)
        self._bell.set()

    def hang_up(self) -> None:
        """Make `get` raise `HungUp`, now and ever after."""
        self._closed = True
        self._bell.set()

    async def get(self) -> Stream:
        """Wait for the next stream that has something; whoever calls this takes it before the next call."""
        while not (self._ready or self._closed):
            self._bell.clear()
            await self._bell.wait()
        if self._closed:
            raise HungUp
        return self._ready.popleft()


class Stream:
    """One live request, as its client sees it.

    Memory is bounded however slowly the client reads: what it has not taken is kept as `MAX_PENDING` events
    at most, so that it costs the text of its own answer and no more.
    """

    __slots__ = ("arrived", "ended", "inbox", "last", "pending", "streaming", "tokenizer", "uid")

    def __init__(self, uid: int, tokenizer: int, inbox: Inbox, streaming: bool, arrived: float) -> None:
        self.uid, self.tokenizer, self.inbox = uid, tokenizer, inbox
        self.streaming, self.arrived = streaming, arrived
        self.last: float | None = None
        """When the last event came; None before the first."""
        self.ended = False
        """The terminal event has come; it may still be pending."""
        self.pending: list[Event] = []

    def put(self, event: Event) -> None:
        """Keep an event for the client and ring its bell."""
        self.pending.append(event)
        if len(self.pending) == 1:
            self.inbox.put(self)
        elif len(self.pending) > MAX_PENDING:
            self.pending = [merge(self.pending)]

    def take(self) -> list[Event]:
        """All events since the last call, in order."""
        taken, self.pending = self.pending, []
        return taken


def merge(events: list[Event]) -> Event:
    """One event that says what these consecutive ones (at least one) say together."""
    return msgspec.structs.replace(
        events[-1],
        index=events[0].index,
        text="".join(event.text for event in events),
        token_ids=b"".join(event.token_ids for event in events),
    )
