"""A live request as its client sees it: a `Stream` of events, and the `Inbox` that tells when there are some.

An inbox may serve many streams at once (a WebSocket's) or one (an HTTP request's).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from stretto.roles.gateway.faults import Refused
from stretto.roles.gateway.job import Job
from stretto.roles.gateway.journal import Account
from stretto.roles.messages import Event

MAX_PENDING = 64
"""Events a stream keeps apart for its reader before they are merged into one for each sequence."""

INFO_BYTES = 512
"""About what the log-probabilities of a token take, with their alternatives."""


class HungUp(Exception):
    """The client left: nobody is there to answer."""


class Inbox:
    """Where one client's connection hears that its streams have something."""

    def __init__(self, abort: Callable[[], object] = lambda: None) -> None:
        """`abort` ends the connection, whatever is still to be sent on it."""
        self._ready: deque[Stream] = deque()
        self._bell = asyncio.Event()
        self._closed = False
        self._abort = abort
        self.taken = 0
        """Streams that `get` has returned, in all."""
        self.pending = 0
        """Bytes, about, that its streams keep for the client."""
        self.was_cut = False

    @property
    def waits(self) -> bool:
        """There is something to take."""
        return bool(self._ready)

    def cut(self) -> None:
        """The client takes too little: end its connection."""
        self.was_cut = True
        self.hang_up()
        self._abort()

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
        self.taken += 1
        return self._ready.popleft()


class Sequence:
    """One of a stream's sequences of tokens, until it ends."""

    __slots__ = ("account", "again", "attached", "last", "proven", "stream", "tokenizer", "uid")

    def __init__(self, uid: int, tokenizer: int, stream: Stream, account: Account, proven: bool) -> None:
        self.uid, self.tokenizer, self.stream, self.account = uid, tokenizer, stream, account
        self.last: float | None = None
        """When its last event came; None before the first."""
        self.again = False
        """It was submitted more than once, so that a second copy of it may run."""
        self.attached = False
        """Its events were asked for from the detokenizer that keeps them."""
        self.proven = proven
        """Whoever speaks for it here submitted it, or had the key to it."""


class Stream:
    """One live request, as its client sees it: the events of all its sequences.

    It ends when the last of them does, or when one fails, which ends the others too. The event of a failure
    is the last one.

    Memory is bounded however slowly the client reads: what it has not taken is kept as `MAX_PENDING` events
    at most (or two for each sequence), so that it costs the text of its own answer and no more.
    """

    __slots__ = (
        "arrived",
        "begun",
        "cancelled",
        "detached",
        "ended",
        "first",
        "inbox",
        "job",
        "moved",
        "pending",
        "sequences",
        "strikes",
        "tokens",
        "uid",
    )

    def __init__(self, uid: int, job: Job, inbox: Inbox, arrived: float) -> None:
        self.uid, self.job, self.inbox, self.arrived = uid, job, inbox, arrived
        self.sequences: dict[int, Sequence] = {}
        """Those that live, by uid; filled by the door."""
        self.begun = False
        """A token has come."""
        self.ended = False
        """The last event has come; it may still be pending."""
        self.moved = False
        """Its client has it elsewhere now: nothing more is said of it here."""
        self.cancelled = False
        """Its client wants no more than it has."""
        self.detached: float | None = None
        """When its client was lost; None while there is one."""
        self.strikes = 0
        """How often a process died at work on it."""
        self.first: float | None = None
        """When its first event came."""
        self.tokens = 0
        """Delivered, of all its sequences."""
        self.pending: list[Event] = []

    def position(self, event: Event) -> int:
        """Which of the job's sequences an event speaks of."""
        return event.uid - self.uid

    def put(self, event: Event) -> None:
        """Keep an event for the client and ring its bell."""
        self.pending.append(event)
        self.inbox.pending += _size(event)
        if len(self.pending) == 1:
            self.inbox.put(self)
        elif event.fault is None and len(self.pending) > max(MAX_PENDING, 2 * len(self.sequences)):
            self.pending = [merge(events) for events in _by_uid(self.pending)]

    def take(self) -> list[Event]:
        """All events since the last call, in order; merged ones stand where their sequence first spoke."""
        taken, self.pending = self.pending, []
        self.inbox.pending -= sum(map(_size, taken))
        return taken


def _size(event: Event) -> int:
    """About what an event costs in memory; additive, so that merging changes nothing."""
    infos = len(event.logprobs) + len(event.prompt_logprobs or ())
    return len(event.text) + len(event.token_ids) + INFO_BYTES * infos


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
        offset=events[0].offset,
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
