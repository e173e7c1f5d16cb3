"""The door: every live request of this gateway, from its `Submit` to its one terminal event.

The core of the role, free of HTTP and of sockets.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from stretto.roles import messages as m
from stretto.roles.gateway import faults
from stretto.roles.gateway.intake import Job
from stretto.roles.gateway.questions import Questions, Reply
from stretto.roles.gateway.stream import Inbox, Stream
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


def uids(index: int) -> Iterator[int]:
    """63-bit request names of one gateway: its index, 24 random bits per boot, a counter."""
    return itertools.count(index << 56 | secrets.randbits(24) << 32)


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
        self._uids = uids(index)
        self._live: dict[int, Stream] = {}
        self._questions = Questions()
        self._closing = False
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def live(self) -> int:
        """Requests that have not ended."""
        return len(self._live)

    # What clients do.

    def submit(self, job: Job, inbox: Inbox) -> Stream:
        """Accept a request; from here on it ends in exactly one terminal event. Raises `Refused`."""
        if self._closing:
            raise faults.Refused(faults.CLOSING)
        stream = Stream(next(self._uids), next(self._turns), inbox, job.stream, self._now())
        if not self._wires.offer(stream.tokenizer, self._message(stream, job)):
            raise faults.Refused(faults.OVERLOADED)
        self._live[stream.uid] = stream
        self._empty.clear()
        self._meter.add("requests_total")
        self._count_live()
        return stream

    async def ask(self, question: Callable[[int, int], m.Tokenize | m.Detokenize]) -> Reply:
        """Send what `question` makes of (uid, gateway) to a tokenizer; its reply. Raises `Refused`."""
        if self._closing:
            raise faults.Refused(faults.CLOSING)
        uid, tokenizer = next(self._uids), next(self._turns)
        if not self._wires.offer(tokenizer, question(uid, self._index)):
            raise faults.Refused(faults.OVERLOADED)
        return await self._questions.wait(uid, tokenizer)

    def cancel(self, stream: Stream) -> None:
        """Ask for an early end; the terminal event still comes."""
        if stream.uid in self._live:
            self._wires.post(stream.tokenizer, m.Cancel(stream.uid))

    def leave(self, stream: Stream) -> None:
        """The client is gone: end the request, if it lives, without a word."""
        if stream.uid in self._live:
            self._wires.post(stream.tokenizer, m.Cancel(stream.uid))
            self._meter.add(_ENDINGS["abort"])
            self._forget(stream)

    # What the back end does.

    def on_message(self, message: m.ToGateway) -> None:
        """Pass on what came from a tokenizer or a detokenizer; what nobody waits for is dropped."""
        now = self._now()
        match message:
            case m.Rejected(uid, fault):
                if stream := self._live.get(uid):
                    self._deliver(stream, _failure(stream, fault), now)
                else:
                    self._questions.settle(uid, fault)
            case m.Tokenized(uid) | m.Detokenized(uid):
                self._questions.settle(uid, message)
            case m.Events(events):
                for event in events:
                    if stream := self._live.get(event.uid):
                        self._deliver(stream, event, now)

    def peer_lost(self, role: str, index: int) -> None:
        """Fail the requests that a dead process took with it; an executor's are the scheduler's to replay."""
        for stream in [s for s in self._live.values() if self._held_by(s, role, index)]:
            self._fail(stream, faults.lost(role))
        if role == "tokenizer":
            self._questions.lose(index, faults.lost(role))

    def _held_by(self, stream: Stream, role: str, index: int) -> bool:
        match role:
            case "scheduler":
                return True
            case "tokenizer":
                return stream.tokenizer == index and stream.last is None
            case "detokenizer":
                return stream.uid % self._detokenizers == index
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
            for stream in list(self._live.values()):
                self._fail(stream, faults.CLOSING)
        self._questions.lose(None, faults.CLOSING)

    # Inside.

    def _message(self, stream: Stream, job: Job) -> m.Submit:
        return m.Submit(
            uid=stream.uid,
            gateway=self._index,
            arrived=stream.arrived,
            params=job.params,
            prompt=job.prompt,
            messages=job.messages,
            template_kwargs=job.template_kwargs,
            add_generation_prompt=job.add_generation_prompt,
            stream=job.stream,
            echo_prompt_ids=job.return_token_ids,
        )

    def _fail(self, stream: Stream, fault: m.Fault) -> None:
        self._wires.post(stream.tokenizer, m.Cancel(stream.uid))
        self._deliver(stream, _failure(stream, fault), self._now())

    def _deliver(self, stream: Stream, event: m.Event, now: float) -> None:
        if stream.streaming and event.token_ids:
            self._time(stream, now)
        stream.last = now
        if event.finish_reason is not None:
            stream.ended = True
            self._meter.add(_ENDINGS[event.finish_reason])
            self._meter.observe("request_latency_seconds", now - stream.arrived)
            self._forget(stream)
        stream.put(event)

    def _time(self, stream: Stream, now: float) -> None:
        if stream.last is None:
            self._meter.observe("time_to_first_token_seconds", now - stream.arrived)
        else:
            self._meter.observe("inter_token_latency_seconds", now - stream.last)

    def _forget(self, stream: Stream) -> None:
        del self._live[stream.uid]
        if not self._live:
            self._empty.set()
        self._count_live()

    def _count_live(self) -> None:
        self._meter.set("requests_live", len(self._live))


def _failure(stream: Stream, fault: m.Fault) -> m.Event:
    return m.Event(stream.uid, 0, "", finish_reason="error", fault=fault)
