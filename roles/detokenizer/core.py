"""All streams of one detokenizer, with no I/O: steps' tokens in, gateways' events out."""

from __future__ import annotations

from dataclasses import dataclass, field

from stretto.roles.detokenizer.details import Details, wants_details
from stretto.roles.detokenizer.labels import Labels
from stretto.roles.detokenizer.scheme import Scheme
from stretto.roles.detokenizer.stream import Stream
from stretto.roles.messages import End, Event, Open, Tokens


@dataclass(slots=True)
class Turn:
    """What is to be sent."""

    events: dict[int, list[Event]] = field(default_factory=dict)
    """By gateway; at most one event of each request."""
    stopped: list[int] = field(default_factory=list)
    """Requests that a stop string ended: the scheduler may free them."""


class Core:
    """Keeps a `Stream` from `Open` to the terminal event, and nothing afterwards.

    A stop token and its `End` come in one message, so that its text is never shown.
    Tokens and ends of a uid that is not open are dropped: its stop string was found while the device was
    ahead. So are tokens that were received before: a replay repeats tokens, but leaves none out.
    """

    def __init__(self, scheme: Scheme) -> None:
        self._scheme = scheme
        self._labels = Labels(scheme.raw)
        self._streams: dict[int, Stream] = {}
        self._fresh: dict[int, Stream] = {}
        """Streaming requests that got tokens since the last `take`."""
        self._turn = Turn()

    def __len__(self) -> int:
        return len(self._streams)

    def feed(self, message: Tokens) -> None:
        """Take in one message. Raises RuntimeError when something of an open request is missing."""
        for opened in message.opens:
            self._open(opened)
        for uid, cached in message.hits:
            if uid in self._streams:
                self._streams[uid].cached = cached
        for part in message.prompt_logprobs:
            if part.uid in self._streams:
                self._streams[part.uid].prompt_scored(part)
        self._tokens(message)
        for end in message.ends:
            self._end(end)

    def take(self) -> Turn:
        """Everything since the last call, and the progress of all streaming requests."""
        for stream in self._fresh.values():
            event = stream.progress()
            if event is not None:
                self._send(stream, event)
        self._fresh.clear()
        turn, self._turn = self._turn, Turn()
        return turn

    def clear(self) -> None:
        """Forget everything, silently: the scheduler that owned these requests is gone."""
        self._streams.clear()
        self._fresh.clear()
        self._turn = Turn()

    def _open(self, opened: Open) -> None:
        output = opened.output
        decoding = self._scheme.begin(memoryview(output.context_ids).cast("i"), output.skip_special)
        details = Details(opened, self._scheme, self._labels) if wants_details(output) else None
        self._streams[opened.uid] = Stream(opened, decoding, details)

    def _tokens(self, message: Tokens) -> None:
        hidden = {end.uid for end in message.ends if end.stop_id is not None}
        uids = memoryview(message.uids).cast("q")
        ids = memoryview(message.ids).cast("i")
        indices = memoryview(message.indices).cast("i")
        scored = {found.uid: found for found in message.logprobs}
        streams, fresh = self._streams, self._fresh
        for uid, token, index in zip(uids, ids, indices, strict=True):
            stream = streams.get(uid)
            if stream is None or index < stream.received:
                continue
            if index > stream.received:
                raise RuntimeError(f"token {index} of request {uid} came when {stream.received} was due")
            if uid in scored:
                stream.scored(token, scored[uid])
            if uid in hidden and not stream.include_stop:
                stream.hide(token)
                continue
            stop = stream.push(token)
            if stop is not None:
                self._close(uid, stream.stopped(stop))
                self._turn.stopped.append(uid)
            elif stream.streaming:
                fresh[uid] = stream

    def _end(self, end: End) -> None:
        stream = self._streams.get(end.uid)
        if stream is not None:
            self._close(end.uid, stream.ended(end))

    def _close(self, uid: int, terminal: Event) -> None:
        stream = self._streams.pop(uid)
        self._send(stream, terminal)

    def _send(self, stream: Stream, event: Event) -> None:
        self._turn.events.setdefault(stream.gateway, []).append(event)
