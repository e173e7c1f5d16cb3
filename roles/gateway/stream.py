"""A live request as its client sees it: a `Stream` of events, and the `Inbox` that tells when there are some.

An inbox may serve many streams at once (a WebSocket's) or one (an HTTP request's).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

import msgspec

from stretto.roles.gateway.faults import Refused
from stretto.roles.gateway.job import Job
from stretto.roles.messages import Event

MAX_PENDING = 64
"""Events a stream keeps apart for its reader before they are merged into one for each sequence."""


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


class Sequence:
    """One of a stream's sequences of tokens, until it ends."""

    __slots__ = ("last", "stream", "tokenizer", "uid")

    def __init__(self, uid: int, tokenizer: int, stream: Stream) -> None:
        self.uid, self.tokenizer, self.stream = uid, tokenizer, stream
        self.last: float | None = None
        """When its last event came; None before the first."""


class Stream:
    """One live request, as its client sees it: the events of all its sequences.

    It ends when the last of them does, or when one fails, which ends the others too. The event of a failure
    is the last one.

    Memory is bounded however slowly the client reads: what it has not taken is kept as `MAX_PENDING` events
    at most (or two for each sequence), so that it costs the text of its own answer and no more.
    """

    __slots__ = ("arrived", "begun", "ended", "inbox", "job", "pending", "sequences", "uid")

    def __init__(self, uid: int, job: Job, inbox: Inbox, arrived: float) -> None:
        self.uid, self.job, self.inbox, self.arrived = uid, job, inbox, arrived
        self.sequences: dict[int, Sequence] = {}
        """Those that live, by uid; filled by the door."""
        self.begun = False
        """A token has come."""
        self.ended = False
        """The last event has come; it may still be pending."""
        self.pending: list[Event] = []

    def position(self, event: Event) -> int:
        """Which of the job's sequences an event speaks of."""
        return event.uid - self.uid

    def put(self, event: Event) -> None:
        """Keep an event for the client and ring its bell."""
        self.pending.append(event)
        if len(self.pending) == 1:
            self.inbox.put(self)
        elif event.fault is None and len(self.pending) > max(MAX_PENDING, 2 * len(self.sequences)):
            self.pending = [merge(events) for events in _by_uid(self.pending)]

    def take(self) -> list[Event]:
        """All events since the last call, in order; merged ones stand where their sequence first spoke."""
        taken, self.pending = self.pending, []
        return taken


def _by_uid(events: Iterable[Event]) -> Iterable[list[Event]]:
    groups: dict[int, list[Event]] = {}
    for event in events:
        groups.setdefault(event.uid, []).append(event)
    return groups.values()


def merge(events: list[Event]) -> Event:
    """One event that says what these consecutive ones (at least one) of a sequence say together."""
    if len(events) == 1:
        return events[0]
    return msgspec.structs.replace(
        events[-1],
        index=events[0].index,
        text="".join(event.text for event in events),
        token_ids=b"".join(event.token_ids for event in events),
        logprobs=[info for event in events for info in event.logprobs],
        prompt_logprobs=events[0].prompt_logprobs,
        prompt_text=events[0].prompt_text,
        prompt_first=events[0].prompt_first,
        usage=events[-1].usage or events[0].usage,
    )


async def gather(stream: Stream) -> dict[int, Event]:
    """Wait for the end; what each sequence said, as one event, by position. Raises `Refused`, `HungUp`."""
    events: list[Event] = []
    while not (stream.ended and events):
        await stream.inbox.get()
        events += stream.take()
        if events[-1].fault is not None:
            raise Refused(events[-1].fault)
    return dict(sorted((stream.position(said[0]), merge(said)) for said in _by_uid(events)))
