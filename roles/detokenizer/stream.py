"""One request's output on its way from tokens to events."""

from __future__ import annotations

from array import array

from stretto.roles.detokenizer.decoding import Decoding
from stretto.roles.detokenizer.details import Details
from stretto.roles.detokenizer.history import History
from stretto.roles.detokenizer.stops import StopStrings
from stretto.roles.messages import (
    End,
    Event,
    Fault,
    FinishReason,
    Open,
    PromptLogprobs,
    TokenLogprobs,
    Usage,
)


class Stream:
    """Collects tokens, and the text they make certain, until an event takes both along.

    A progress event is made only when there is text to show: ids whose text is empty or held back wait for
    the next text or the end. So the ids of all events add up, and an event's text is that of its ids, but
    for what is held back. An output ends with a token: that token's id, log-probability and count are the
    last ones told, and where its text completes a stop string, the text alone is cut inside it.
    """

    __slots__ = (
        "_decoding",
        "_delivered",
        "_details",
        "_ids",
        "_min_tokens",
        "_offset",
        "_opened",
        "_stops",
        "_sum",
        "_text",
        "cached",
        "gateway",
        "history",
        "include_stop",
        "left",
        "received",
        "resume",
        "streaming",
    )

    def __init__(self, opened: Open, decoding: Decoding, details: Details | None = None) -> None:
        output = opened.output
        self.gateway: int | None = output.gateway
        """Who gets its events; None while nobody does."""
        self.left: int | None = None
        """The gateway that was the last to get them, while nobody does."""
        self.resume: int | None = None
        """The client has come back and has so many tokens: it wants no event before there are more."""
        self.history = History() if output.retain > 0 else None
        self.streaming = output.stream
        self.include_stop = output.include_stop
        self.received = 0
        """Tokens so far, the hidden ones included."""
        self.cached: int | None = None
        """Prompt tokens that came from the prefix cache, once the scheduler has said so. Its first word
        counts: after a death a prompt is computed again, with another cache."""
        self._opened = opened
        self._decoding = decoding
        self._details = details
        self._sum = 0.0
        self._min_tokens = output.min_tokens
        self._stops = StopStrings(output.stop, output.include_stop) if output.stop else None
        self._text: list[str] = []
        self._ids = array("i")
        """Of the whole output."""
        self._delivered = self._offset = 0
        """Tokens and characters that events have taken along."""

    @property
    def request(self) -> bytes:
        """The `Request` that the scheduler made of it; empty where it is too large to keep."""
        return self._opened.request

    @property
    def generated(self) -> bytes:
        """int32: its tokens so far."""
        return self._ids.tobytes()

    @property
    def retain(self) -> float:
        """Seconds that it is kept for a client that comes back."""
        return self._opened.output.retain

    @property
    def key(self) -> int:
        """What such a client must know."""
        return self._opened.output.key

    def prompt_scored(self, part: PromptLogprobs) -> None:
        """Take log-probabilities of the prompt's tokens."""
        if self._details is not None:
            self._details.prompt(part)

    def scored(self, token: int, found: TokenLogprobs) -> None:
        """Take the log-probability of a token, which is then to be pushed or hidden."""
        self._sum += found.logprob
        if self._details is not None:
            self._details.token(token, found)

    def push(self, token: int) -> str | None:
        """Take the next token; returns the stop string that it completes, if any."""
        self.received += 1
        self._ids.append(token)
        text, stop = self._decoding.push(token), None
        if self._stops is not None:
            text, stop = self._watch(self._stops, text)
        if text:
            self._text.append(text)
        if self.history is not None:
            self.history.token(len(text))
        return stop

    def hide(self, token: int) -> None:
        """Take a token that counts but has no visible text: the one that ended the output."""
        self.received += 1
        self._ids.append(token)
        if self.history is not None:
            self.history.token(0)

    def progress(self) -> Event | None:
        """What has become certain since the last event; None when there is no text to show."""
        if not self._text:
            return None
        uid, usage, offset = self._opened.uid, None if self._delivered else self._usage(), self._offset
        if self._details is not None:
            fields = self._details.take(self.received - self._delivered, self._decoding.completed)
            return Event(uid, *self._take(), usage=usage, offset=offset, **fields)
        index, text, ids = self._take()
        return Event(uid, index, text, ids, None, None, usage, offset=offset)  # unpacked: half the time

    def stopped(self, stop: str) -> Event:
        """The terminal event of an output that a stop string ends; what the stream still held is cut off."""
        return self._last("stop", stop)

    def ended(self, end: End) -> Event:
        """The terminal event of an output that the scheduler ended; held-back text is shown.

        Held-back bytes may complete a stop string even now.
        """
        if self.cached is None:
            self.cached = end.cached_tokens
        stop = self._flush()
        if stop is not None and end.reason in ("stop", "length"):
            return self.stopped(stop)
        return self._last(end.reason, None if end.silent else end.stop_id, end.fault)

    def failed(self, fault: Fault) -> Event:
        """The terminal event of an output that is given up."""
        return self._last("error", None, fault)

    def _flush(self) -> str | None:
        text, stop = self._decoding.finish(), None
        if self._stops is not None:
            text, stop = self._watch(self._stops, text)
            text += self._stops.finish()
        self._text.append(text)
        return stop

    def _watch(self, stops: StopStrings, text: str) -> tuple[str, str | None]:
        """Nothing that the first `min_tokens` tokens complete is a stop."""
        return stops.push(text) if self.received > self._min_tokens else (stops.skip(text), None)

    def _last(
        self, reason: FinishReason, stop_reason: str | int | None = None, fault: Fault | None = None
    ) -> Event:
        opened, details, offset = self._opened, self._details, self._offset
        new = self.received - self._delivered
        fields = {} if details is None else details.take(new, self._decoding.completed)
        return Event(
            opened.uid,
            *self._take(),
            reason,
            stop_reason,
            self._usage(),
            fault,
            opened.output.prompt_ids if opened.output.return_prompt_ids else b"",
            cumulative_logprob=self._sum,
            offset=offset,
            **fields,
        )

    def _take(self) -> tuple[int, str, bytes]:
        """Index, text and ids of the next event."""
        index, text = self._delivered, "".join(self._text)
        self._text.clear()
        self._delivered = self.received
        self._offset += len(text)
        return index, text, self._ids[index:].tobytes()

    def _usage(self) -> Usage:
        return Usage(self._opened.prompt_tokens, self.received, self.cached or 0)
