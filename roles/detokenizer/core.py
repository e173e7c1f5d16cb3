"""All streams of one detokenizer, with no I/O: steps' tokens in, gateways' events out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from stretto.roles.detokenizer.details import Details, wants_details
from stretto.roles.detokenizer.labels import Labels
from stretto.roles.detokenizer.retention import Retention
from stretto.roles.detokenizer.scheme import Scheme
from stretto.roles.detokenizer.stream import Stream
from stretto.roles.messages import (
    Attach,
    Attached,
    Detach,
    Detached,
    End,
    Event,
    Fault,
    Held,
    Keep,
    Open,
    Recall,
    Tokens,
)

MAX_RECALL_BYTES = 1 << 20
"""What one `Recall` may carry, one stream more or less: well under a ring's largest record (4 MiB)."""

MAX_DEATHS = 2
"""Deaths that a request may be suspected of before it is given up."""

POISON = Fault(
    500,
    "The scheduler died twice while it worked on this request, so the request is not tried again.",
    type="server_error",
    code="poison_request",
)


@dataclass(slots=True)
class Turn:
    """What is to be sent."""

    events: dict[int, list[Event]] = field(default_factory=dict)
    """By gateway; at most one event of each request."""
    stopped: list[int] = field(default_factory=list)
    """Requests that the scheduler may free: a stop string ended them, or nobody wants them any more."""
    moves: list[tuple[int, Detached | Attached]] = field(default_factory=list)
    """Streams that come to a gateway or leave it, which it is told before it gets the events."""


class Core:
    """Keeps a `Stream` from `Open` to the terminal event, and afterwards where its client may come back.

    A stop token and its `End` come in one message, so that its text is never shown.
    Tokens and ends of a uid that is not open are dropped: its stop string was found while the device was
    ahead. So are tokens that were received before: a replay repeats tokens, but leaves none out.
    """

    def __init__(self, scheme: Scheme, at_work: Callable[[int], None] = lambda uid: None) -> None:
        """`at_work` is told the uid that is worked on next, 0 when none is."""
        self._scheme = scheme
        self._at_work = at_work
        self._labels = Labels(scheme.raw)
        self._streams: dict[int, Stream] = {}
        self._fresh: dict[int, Stream] = {}
        """Streaming requests that got tokens since the last `take`."""
        self._turn = Turn()
        self._retention = Retention()
        self._suspicions: dict[int, int] = {}
        """By uid: deaths of the scheduler."""
        self._now = 0.0

    def __len__(self) -> int:
        """Streams that have not ended."""
        return len(self._streams)

    @property
    def next_deadline(self) -> float | None:
        """When to call `tick`, at the latest."""
        return self._retention.next

    # The scheduler's side.

    def feed(self, message: Tokens) -> None:
        """Take in one message. Raises RuntimeError when something of an open request is missing."""
        hits = dict(message.hits)
        for opened in message.opens:
            self._at_work(opened.uid)
            self._open(opened, hits)
        for uid, cached in message.hits:
            self._hit(uid, cached)
        for part in message.prompt_logprobs:
            if part.uid in self._streams:
                self._at_work(part.uid)
                self._streams[part.uid].prompt_scored(part)
        self._tokens(message)
        for end in message.ends:
            self._at_work(end.uid)
            self._end(end)
        self._at_work(0)

    def take(self) -> Turn:
        """Everything since the last call, and the progress of all streaming requests."""
        for uid, stream in self._fresh.items():
            self._at_work(uid)
            event = stream.progress()
            if event is not None:
                self._send(stream, event)
        self._at_work(0)
        self._fresh.clear()
        turn, self._turn = self._turn, Turn()
        return turn

    def recall(self) -> Iterator[Recall]:
        """What a new scheduler is to go on with, for the ring's first records.

        What is too large for that is forgotten: its gateway submits it again.
        """
        for uid in [uid for uid, stream in self._streams.items() if not stream.request]:
            self._forget(uid)
        part, size = Recall(last=False), 0
        for uid, stream in self._streams.items():
            held = Held(uid, stream.request, stream.generated)
            part.streams.append(held)
            size += len(held.request) + len(held.generated)
            if size > MAX_RECALL_BYTES:
                yield part
                part, size = Recall(last=False), 0
        yield Recall(part.streams)

    def suspect(self, uid: int) -> None:
        """The scheduler died while it worked on this request."""
        deaths = self._suspicions[uid] = self._suspicions.get(uid, 0) + 1
        if deaths >= MAX_DEATHS and uid in self._streams:
            self._turn.stopped.append(uid)
            self._close(uid, self._streams[uid].failed(POISON))

    # The gateways' side.

    def tick(self, now: float) -> None:
        """It is `now`, `time.monotonic()` seconds; end what is over."""
        self._now = now
        at = self._retention.next
        if at is None or at > now:
            return
        for uid in self._retention.over(now):
            self._drop(uid)
        for call in self._retention.impatient(now):
            self._turn.moves.append((call.gateway, Detached(call.uid, known=False)))

    def attach(self, call: Attach) -> None:
        """A client is back; one that nobody knows, or who knows not the key, waits a moment in vain."""
        stream = self._streams.get(call.uid) or self._retention.finished(call.uid)
        if stream is not None and stream.history is not None and stream.key == call.key:
            self._give(call.uid, stream, call.gateway, call.index)
        elif (before := self._retention.wait(call, self._now)) is not None:
            self._turn.moves.append((before.gateway, Detached(before.uid, known=False)))

    def detach(self, message: Detach) -> None:
        """A client is gone; its stream is kept for a while."""
        stream = self._streams.get(message.uid)
        if stream is None:
            self._retention.release(message.uid, message.gateway, self._now)
        elif message.gateway in (None, stream.gateway):
            self._leave(message.uid, stream)

    def keep(self, message: Keep) -> None:
        """A choice that has ended is kept for the client of those that have not."""
        self._retention.hold(message.uid, message.gateway)

    def lose_gateway(self, gateway: int) -> None:
        """A gateway died: what nobody can come back for is ended."""
        for uid, stream in list(self._streams.items()):
            if stream.gateway == gateway:
                self._leave(uid, stream)
        self._retention.release_all(gateway, self._now)

    def _leave(self, uid: int, stream: Stream) -> None:
        if stream.history is None:
            self._drop(uid)
        else:
            self._retention.leave(uid, stream, self._now)

    def _drop(self, uid: int) -> None:
        """End a stream without a word."""
        self._forget(uid)
        self._turn.stopped.append(uid)

    def _forget(self, uid: int) -> None:
        del self._streams[uid]
        self._fresh.pop(uid, None)
        self._retention.back(uid)

    def _give(self, uid: int, stream: Stream, gateway: int, index: int) -> None:
        """Send a gateway all from token `index` on, now and as it comes."""
        history = stream.history
        assert history is not None
        if self._fresh.pop(uid, None) is not None and (event := stream.progress()) is not None:
            history.add(event)
        before = stream.left if stream.gateway is None else stream.gateway
        if before is not None and before != gateway:
            self._turn.moves.append((before, Detached(uid, known=True)))
        stream.gateway, stream.resume = gateway, None
        told = history.since(index)
        if told is not None:
            self._turn.events.setdefault(gateway, []).append(told)
        else:
            stream.resume = index
            self._turn.moves.append((gateway, Attached(uid)))
        if not history.ended:
            self._retention.back(uid)

    # Streams.

    def _open(self, opened: Open, hits: dict[int, int]) -> None:
        uid, output = opened.uid, opened.output
        if (finished := self._retention.finished(uid)) is not None:
            self._turn.stopped.append(uid)
            self._give(uid, finished, output.gateway, 0)
            return
        stream = self._streams.get(uid)
        if stream is None:
            decoding = self._scheme.begin(memoryview(output.context_ids).cast("i"), output.skip_special)
            details = Details(opened, self._scheme, self._labels) if wants_details(output) else None
            stream = self._streams[uid] = Stream(opened, decoding, details)
            stream.cached = hits.get(uid)
            if output.retain > 0 and (call := self._retention.caller(uid, output.key)) is not None:
                self._give(uid, stream, call.gateway, call.index)
        for token in memoryview(opened.generated).cast("i")[stream.received :]:
            if (stop := stream.push(token)) is not None:
                self._stop(uid, stream, stop)
                return
            if stream.streaming:
                self._fresh[uid] = stream

    def _hit(self, uid: int, cached: int) -> None:
        stream = self._streams.get(uid)
        if stream is not None and stream.cached is None:
            stream.cached = cached

    def _tokens(self, message: Tokens) -> None:
        hidden = {end.uid for end in message.ends if end.stop_id is not None}
        uids = memoryview(message.uids).cast("q")
        ids = memoryview(message.ids).cast("i")
        indices = memoryview(message.indices).cast("i")
        scored = {found.uid: found for found in message.logprobs}
        streams, fresh, at_work = self._streams, self._fresh, self._at_work
        for uid, token, index in zip(uids, ids, indices, strict=True):
            stream = streams.get(uid)
            if stream is None or index < stream.received:
                continue
            at_work(uid)
            if index > stream.received:
                raise RuntimeError(f"token {index} of request {uid} came when {stream.received} was due")
            if uid in scored:
                stream.scored(token, scored[uid])
            if uid in hidden and not stream.include_stop:
                stream.hide(token)
            elif (stop := stream.push(token)) is not None:
                self._stop(uid, stream, stop)
            elif stream.streaming:
                fresh[uid] = stream

    def _stop(self, uid: int, stream: Stream, stop: str) -> None:
        """A stop string was found."""
        self._close(uid, stream.stopped(stop))
        self._turn.stopped.append(uid)

    def _end(self, end: End) -> None:
        stream = self._streams.get(end.uid)
        if stream is not None:
            self._close(end.uid, stream.ended(end))

    def _close(self, uid: int, terminal: Event) -> None:
        stream = self._streams[uid]
        self._forget(uid)
        self._suspicions.pop(uid, None)
        self._send(stream, terminal)
        if stream.history is not None:
            self._retention.keep(uid, stream, self._now)

    def _send(self, stream: Stream, event: Event) -> None:
        told: Event | None = event
        if stream.history is not None:
            stream.history.add(event)
            if stream.resume is not None and (told := stream.history.since(stream.resume)) is not None:
                stream.resume = None
        if told is not None and stream.gateway is not None:
            self._turn.events.setdefault(stream.gateway, []).append(told)
