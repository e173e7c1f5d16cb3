"""One request's output on its way from tokens to events."""

from __future__ import annotations

from array import array

from stretto.roles.detokenizer.decoding import Decoding
from stretto.roles.detokenizer.details import Details
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
        "_opened",
        "_stops",
        "_sum",
        "_text",
        "cached",
        "gateway",
        "include_stop",
        "received",
        "streaming",
    )

    def __init__(self, opened: Open, decoding: Decoding, details: Details | None = None) -> None:
        output = opened.output
        self.gateway = output.gateway
        self.streaming = output.stream
        self.include_stop = output.include_stop
        self.received = 0
        """Tokens so far, the hidden ones included."""
        self.cached = 0
        """Prompt tokens that came from the prefix cache, as far as the scheduler has said."""
        self._opened = opened
        self._decoding = decoding
        self._details = details
        self._sum = 0.0
        self._min_tokens = output.min_tokens
        self._stops = StopStrings(output.stop, output.include_stop) if output.stop else None
        self._text: list[str] = []
        self._ids = array("i")
        self._delivered = 0

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
        return stop

    def hide(self, token: int) -> None:
        """Take a token that counts but has no visible text: the one that ended the output."""
        self.received += 1
        self._ids.append(token)

    def progress(self) -> Event | None:
        """What has become certain since the last event; None when there is no text to show."""
        if not self._text:
            return None
        uid, usage = self._opened.uid, None if self._delivered else self._usage()
        if self._details is not None:
            fields = self._details.take(len(self._ids), self._decoding.completed)
            return Event(uid, *self._take(), usage=usage, **fields)
        index, text, ids = self._take()
        return Event(uid, index, text, ids, None, None, usage)

    def stopped(self, stop: str) -> Event:
        """The terminal event of an output that a stop string ends; what the stream still held is cut off."""
        return self._last("stop", stop)

    def ended(self, end: End) -> Event:
        """The terminal event of an output that the scheduler ended; held-back text is shown.

        Held-back bytes may complete a stop string even now.
        """
        self.cached = end.cached_tokens or self.cached
        stop = self._flush()
        if stop is not None and end.reason in ("stop", "length"):
            return self.stopped(stop)
        return self._last(end.reason, None if end.silent else end.stop_id, end.fault)

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
        opened, details = self._opened, self._details
        fields = {} if details is None else details.take(len(self._ids), self._decoding.completed)
        return Event(
            opened.uid,
            *self._take(),
            reason,
            stop_reason,
            self._usage(),
            fault,
            opened.output.prompt_ids if opened.output.return_prompt_ids else b"",
            cumulative_logprob=self._sum,
            **fields,
        )

    def _take(self) -> tuple[int, str, bytes]:
        """Index, text and ids of the next event."""
        taken = self._delivered, "".join(self._text), self._ids.tobytes()
        self._text.clear()
        self._ids = array("i")
        self._delivered = self.received
        return taken

    def _usage(self) -> Usage:
        return Usage(self._opened.prompt_tokens, self.received, self.cached)
