"""The door: every live request of this gateway, from its `Submit` to its one terminal event.

The core of the role, free of HTTP and of sockets.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from typing import Protocol

import msgspec

from stretto.roles import messages as m
from stretto.roles.gateway import faults
from stretto.roles.gateway.job import Job
from stretto.roles.gateway.questions import Questions, Reply
from stretto.roles.gateway.stream import Inbox, Sequence, Stream
from stretto.roles.gateway.submits import Uids, submits
from stretto.roles.metrics import Meter

_ENDINGS = {
    "stop": "requests_finished_total",
    "length": "requests_finished_total",
    "error": "requests_failed_total",
    "abort": "requests_cancelled_total",
}


class Wires(Protocol):
    """The way to the tokenizers. Neither method ever blocks."""

    def offer(self, tokenizer: int, message: m.ToTokenizer) -> bool:
        """Send; False when the tokenizer has more waiting than it can take."""

    def post(self, tokenizer: int, message: m.ToTokenizer) -> None:
        """Send without fail, later if it cannot be now."""


class Door:
    """Submits requests, hands their events out, and makes sure that each ends exactly once."""

    def __init__(
        self,
        index: int,
        tokenizers: int,
        detokenizers: int,
        wires: Wires,
        meter: Meter,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._index, self._detokenizers = index, detokenizers
        self._turns = itertools.cycle(range(tokenizers))
        self._wires, self._meter, self._now = wires, meter, now
        self._uids = Uids(index)
        self._sequences: dict[int, Sequence] = {}
        self._streams: dict[int, Stream] = {}
        self._questions = Questions()
        self._closing = False
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def live(self) -> int:
        """Requests that have not ended."""
        return len(self._streams)

    @property
    def streams(self) -> list[Stream]:
        """Those requests."""
        return list(self._streams.values())

    # What clients do.

    def submit(self, job: Job, inbox: Inbox, follows: bool = False) -> Stream:
        """Accept a request; from here on its stream ends exactly once. Raises `Refused`.

        Whether the tokenizers have room is asked once; of a batch, the rest follows as they get it. So does
        a request that `follows` another in one body.
        """
        if self._closing:
            raise faults.Refused(faults.CLOSING)
        stream = Stream(self._uids.take(job.uids), job, inbox, self._now())
        first, *rest = submits(job, stream.uid, self._index, stream.arrived)
        tokenizers = [next(self._turns) for _ in (first, *rest)]
        if follows:
            self._wires.post(tokenizers[0], first)
        elif not self._wires.offer(tokenizers[0], first):
            raise faults.Refused(faults.OVERLOADED)
        self._admit(stream, tokenizers)
        for tokenizer, message in zip(tokenizers[1:], rest, strict=True):
            self._wires.post(tokenizer, message)
        return stream

    async def ask(self, question: Callable[[int, int], m.Tokenize | m.Detokenize]) -> Reply:
        """Send what `question` makes of (uid, gateway) to a tokenizer; its reply. Raises `Refused`."""
        if self._closing:
            raise faults.Refused(faults.CLOSING)
        uid, tokenizer = self._uids.take(), next(self._turns)
        if not self._wires.offer(tokenizer, question(uid, self._index)):
            raise faults.Refused(faults.OVERLOADED)
        return await self._questions.wait(uid, tokenizer)

    def cancel(self, stream: Stream) -> None:
        """Ask for an early end; the terminal events still come."""
        for sequence in stream.sequences.values():
            self._wires.post(sequence.tokenizer, m.Cancel(sequence.uid))

    def leave(self, stream: Stream) -> None:
        """The client is gone: end the request, if it lives, without a word."""
        if not stream.ended:
            self.cancel(stream)
            self._end(stream, "abort")

    def named(self, id: str) -> list[Stream]:
        """The live requests whose answers have this id; several, where clients chose the same."""
        return [stream for stream in self.streams if _answers_to(stream, id)]

    # What the back end does.

    def on_message(self, message: m.ToGateway) -> None:
        """Pass on what came from a tokenizer or a detokenizer; what nobody waits for is dropped."""
        now = self._now()
        match message:
            case m.Rejected(uid, fault):
                if sequence := self._sequences.get(uid):
                    self._deliver(sequence, _failure(uid, fault), now)
                else:
                    self._questions.settle(uid, fault)
            case m.Tokenized(uid) | m.Detokenized(uid):
                self._questions.settle(uid, message)
            case m.Events(events):
                for event in events:
                    if sequence := self._sequences.get(event.uid):
                        self._deliver(sequence, event, now)

    def peer_lost(self, role: str, index: int) -> None:
        """Fail the requests that a dead process took with it; an executor's are the scheduler's to replay."""
        for stream in self.streams:
            if any(self._held_by(sequence, role, index) for sequence in stream.sequences.values()):
                self._fail(stream, faults.lost(role))
        if role == "tokenizer":
            self._questions.lose(index, faults.lost(role))

    def _held_by(self, sequence: Sequence, role: str, index: int) -> bool:
        match role:
            case "scheduler":
                return True
            case "tokenizer":
                return sequence.tokenizer == index and sequence.last is None
            case "detokenizer":
                return sequence.uid % self._detokenizers == index
        return False

    # Shutting down.

    def stop_intake(self) -> None:
        """Refuse what comes from now on."""
        self._closing = True

    async def drained(self, timeout: float) -> None:
        """Wait until nothing lives; what still does after `timeout` seconds fails."""
        try:
            await asyncio.wait_for(self._empty.wait(), timeout)
        except TimeoutError:
            for stream in self.streams:
                self._fail(stream, faults.CLOSING)
        self._questions.lose(None, faults.CLOSING)

    # Inside.

    def _admit(self, stream: Stream, tokenizers: list[int]) -> None:
        for position in stream.job.positions:
            uid = stream.uid + position
            sequence = Sequence(uid, tokenizers[position // stream.job.width], stream)
            stream.sequences[uid] = self._sequences[uid] = sequence
        self._streams[stream.uid] = stream
        self._empty.clear()
        self._meter.add("requests_total")
        self._count_live()

    def _fail(self, stream: Stream, fault: m.Fault) -> None:
        """End a request by a failure of ours."""
        sequence = next(iter(stream.sequences.values()))
        self._wires.post(sequence.tokenizer, m.Cancel(sequence.uid))
        self._deliver(sequence, _failure(sequence.uid, fault), self._now())

    def _deliver(self, sequence: Sequence, event: m.Event, now: float) -> None:
        stream = sequence.stream
        if stream.job.lead and sequence.last is None:
            event = msgspec.structs.replace(event, prompt_text=stream.job.lead)
        if stream.job.stream and event.token_ids:
            self._time(sequence, now)
        sequence.last = now
        if event.finish_reason is not None:
            self._finish(sequence, event.finish_reason, now)
        stream.put(event)

    def _time(self, sequence: Sequence, now: float) -> None:
        stream = sequence.stream
        if sequence.last is not None:
            self._meter.observe("inter_token_latency_seconds", now - sequence.last)
        elif not stream.begun:
            self._meter.observe("time_to_first_token_seconds", now - stream.arrived)
        stream.begun = True

    def _finish(self, sequence: Sequence, reason: m.FinishReason, now: float) -> None:
        """A sequence has ended; and its stream, if it was the last, or failed."""
        stream = sequence.stream
        del stream.sequences[sequence.uid], self._sequences[sequence.uid]
        if reason == "error":
            self.cancel(stream)
        if reason == "error" or not stream.sequences:
            self._meter.observe("request_latency_seconds", now - stream.arrived)
            self._end(stream, reason)

    def _end(self, stream: Stream, reason: m.FinishReason) -> None:
        stream.ended = True
        self._meter.add(_ENDINGS[reason])
        for uid in stream.sequences:
            del self._sequences[uid]
        stream.sequences.clear()
        del self._streams[stream.uid]
        if not self._streams:
            self._empty.set()
        self._count_live()

    def _count_live(self) -> None:
        self._meter.set("requests_live", len(self._streams))


def _failure(uid: int, fault: m.Fault) -> m.Event:
    return m.Event(uid, 0, "", finish_reason="error", fault=fault)


def _answers_to(stream: Stream, id: str) -> bool:
    if stream.job.request_id is not None:
        return stream.job.request_id == id
    return id.endswith(f"-{stream.uid:016x}")
