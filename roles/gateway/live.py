"""The streams of a gateway that have not ended, and how they come and go."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec.structs import replace

from stretto.roles import messages as m
from stretto.roles.gateway.cancels import Cancels
from stretto.roles.gateway.journal import ID_BYTES, Account
from stretto.roles.gateway.queue import Queue
from stretto.roles.gateway.stream import Sequence as Sequenced
from stretto.roles.gateway.stream import Stream
from stretto.roles.metrics import Meter

_log = logging.getLogger(__name__)

_ENDINGS = {
    "stop": ("requests_finished_total",),
    "length": ("requests_finished_total", "requests_cut_total"),
    "error": ("requests_failed_total",),
    "abort": ("requests_cancelled_total",),
}


class Wires(Protocol):
    """The way to the tokenizers and the detokenizers. No method ever blocks."""

    def offer(self, tokenizer: int, message: m.ToTokenizer) -> bool:
        """Send; False when the tokenizer has more waiting than it can take."""

    def post(self, tokenizer: int, message: m.ToTokenizer) -> None:
        """Send without fail, later if it cannot be now."""

    def tell(self, detokenizer: int, message: m.ToDetokenizer) -> None:
        """Send without fail, later if it cannot be now."""


class Live:
    """Finds streams and sequences by uid; each stream ends here exactly once, or is forgotten."""

    def __init__(
        self,
        index: int,
        detokenizers: int,
        wires: Wires,
        meter: Meter,
        queue: Queue,
        now: Callable[[], float],
        on_empty: Callable[[bool], None],
    ) -> None:
        """`on_empty` is told when the last stream has gone (True), and when there is one again."""
        self.index, self.detokenizers, self.wires = index, detokenizers, wires
        self.meter, self.queue, self.now = meter, queue, now
        self._on_empty = on_empty
        self.streams: dict[int, Stream] = {}
        """By uid of the first sequence."""
        self.sequences: dict[int, Sequenced] = {}
        """By uid."""
        self.cancels = Cancels()

    def __len__(self) -> int:
        return len(self.streams)

    def all(self) -> list[Stream]:
        """The streams by now, while more of them may end."""
        return list(self.streams.values())

    def admit(
        self,
        stream: Stream,
        tokenizers: Sequence[int],
        accounts: Sequence[Account],
        proven: bool,
        positions: Sequence[int] = (),
    ) -> None:
        """Take a stream in: a tokenizer for each prompt, an account for each sequence that lives."""
        for position, account in zip(positions or stream.job.positions, accounts, strict=True):
            uid, tokenizer = stream.uid + position, tokenizers[position // stream.job.width]
            sequence = Sequenced(uid, tokenizer, stream, account, proven)
            stream.sequences[uid] = self.sequences[uid] = sequence
        self.streams[stream.uid] = stream
        self._count()

    def tell(self, uid: int, message: m.ToDetokenizer) -> None:
        """Send to the detokenizer that has this sequence."""
        self.wires.tell(uid % self.detokenizers, message)

    def cancel(self, sequence: Sequenced) -> None:
        """Ask for the early end of a sequence, if whoever asks may."""
        if sequence.proven:
            self.cancels.add(sequence.uid, sequence.tokenizer)
            self.wires.post(sequence.tokenizer, m.Cancel(sequence.uid))

    def cancel_all(self, stream: Stream) -> None:
        """Ask for the early end of a stream; its terminal events still come."""
        stream.cancelled = True
        for sequence in stream.sequences.values():
            self.cancel(sequence)

    def fail(self, stream: Stream, fault: m.Fault) -> None:
        """End a request by a failure of ours."""
        sequence = next(iter(stream.sequences.values()))
        self.cancel(sequence)
        self.deliver(sequence, failure(sequence.uid, fault))

    def leave(self, stream: Stream) -> None:
        """The client is gone: end the request, if it lives, without a word."""
        if not (stream.ended or stream.moved):
            self.cancel_all(stream)
            self._end(stream, "abort")

    def forget(self, stream: Stream) -> None:
        """Its client has it elsewhere; it lives on there."""
        stream.moved = True
        stream.take()
        stream.inbox.put(stream)
        self._drop(stream)

    def deliver(self, sequence: Sequenced, event: m.Event) -> None:
        """Hand an event to the client."""
        stream, now = sequence.stream, self.now()
        if stream.job.lead and sequence.last is None and event.index == 0:
            event = replace(event, prompt_text=stream.job.lead)
        if stream.job.stream and event.token_ids:
            self._time(sequence, now)
        sequence.last = now
        if stream.first is None:
            stream.first = now
            self.queue.leave(stream, now)
        stream.tokens += len(event.token_ids) // ID_BYTES
        if event.finish_reason is not None:
            self.finish(sequence, event.finish_reason, event.usage)
        stream.put(event)

    def _time(self, sequence: Sequenced, now: float) -> None:
        stream = sequence.stream
        if sequence.last is not None:
            self.meter.observe("inter_token_latency_seconds", now - sequence.last)
        elif not stream.begun:
            self.meter.observe("time_to_first_token_seconds", now - stream.arrived)
        stream.begun = True

    def finish(self, sequence: Sequenced, reason: m.FinishReason, usage: m.Usage | None = None) -> None:
        """A sequence has ended; and its stream, if it was the last, or failed."""
        stream = sequence.stream
        if usage is not None:
            self.meter.observe("request_prompt_tokens", usage.prompt_tokens)
            self.meter.observe("request_generated_tokens", usage.completion_tokens)
        del stream.sequences[sequence.uid], self.sequences[sequence.uid]
        if sequence.again:  # another copy may run
            self.wires.post(sequence.tokenizer, m.Cancel(sequence.uid))
        if stream.job.retain and stream.detached is None and stream.sequences:
            self.tell(sequence.uid, m.Keep(sequence.uid, self.index))
        if reason == "error":
            self.cancel_all(stream)
        if reason == "error" or not stream.sequences:
            self.meter.observe("request_latency_seconds", self.now() - stream.arrived)
            self._end(stream, reason)

    def _end(self, stream: Stream, reason: m.FinishReason) -> None:
        stream.ended = True
        for name in _ENDINGS[reason]:
            self.meter.add(name)
        _log_end(stream, reason, self.now())
        self._drop(stream)

    def _drop(self, stream: Stream) -> None:
        self.queue.leave(stream, self.now())
        self.release(stream)
        for uid in stream.sequences:
            del self.sequences[uid]
        stream.sequences.clear()
        del self.streams[stream.uid]
        self._count()

    def release(self, stream: Stream) -> None:
        """The choices that have ended need not wait for the others any more."""
        if stream.job.retain and stream.detached is None and stream.job.uids > 1:
            for uid in (stream.uid + position for position in stream.job.positions):
                if uid not in stream.sequences:
                    self.tell(uid, m.Detach(uid, self.index))

    def _count(self) -> None:
        self._on_empty(not self.streams)
        self.meter.set("requests_live", len(self.streams))


def failure(uid: int, fault: m.Fault) -> m.Event:
    """The event that ends a request by a fault."""
    return m.Event(uid, 0, "", finish_reason="error", fault=fault)


def _log_end(stream: Stream, reason: m.FinishReason, now: float) -> None:
    """One line for each request, at level info; times are milliseconds."""
    if _log.isEnabledFor(logging.INFO):
        first = "-" if stream.first is None else f"{(stream.first - stream.arrived) * 1000:.0f}"
        _log.info(
            "request id=%s uid=%016x status=%s tokens=%d ttft_ms=%s duration_ms=%.0f",
            stream.job.request_id or "-", stream.uid, reason, stream.tokens, first,
            (now - stream.arrived) * 1000,
        )  # fmt: skip
