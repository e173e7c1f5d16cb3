"""The door: every live request of this gateway, from its `Submit` to its one terminal event.

The core of the role, free of HTTP and of sockets.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec.structs import replace

from stretto.roles import messages as m
from stretto.roles.gateway import faults
from stretto.roles.gateway.cancels import Cancels
from stretto.roles.gateway.claim import Claim
from stretto.roles.gateway.job import Job
from stretto.roles.gateway.journal import ID_BYTES, Account, Gap
from stretto.roles.gateway.questions import MAX_STRIKES, Asking, Questions, Reply
from stretto.roles.gateway.queue import Queue
from stretto.roles.gateway.readers import Readers
from stretto.roles.gateway.stream import Inbox, Sequence, Stream
from stretto.roles.gateway.submits import Uids, repeatable, seeded, submits
from stretto.roles.metrics import Meter

_log = logging.getLogger(__name__)

_ENDINGS = {
    "stop": "requests_finished_total",
    "length": "requests_finished_total",
    "error": "requests_failed_total",
    "abort": "requests_cancelled_total",
}


class Wires(Protocol):
    """The way to the tokenizers and the detokenizers. No method ever blocks."""

    def offer(self, tokenizer: int, message: m.ToTokenizer) -> bool:
        """Send; False when the tokenizer has more waiting than it can take."""

    def post(self, tokenizer: int, message: m.ToTokenizer) -> None:
        """Send without fail, later if it cannot be now."""

    def tell(self, detokenizer: int, message: m.ToDetokenizer) -> None:
        """Send without fail, later if it cannot be now."""


class Door:
    """Submits requests, hands their events out, and makes sure that each ends exactly once.

    It keeps what is needed to submit a request again (the job, the seed, what was delivered), so that no
    death behind it ends a request: what a dead process may have had is submitted again under the same uids.
    Who has it after all ignores that, and what comes twice is cut (`journal`).

    A stream whose job is to be retained outlives its client: it is `detach`ed when the connection is lost,
    and `resume`d here or at another gateway by whoever knows its key.
    """

    def __init__(
        self,
        index: int,
        tokenizers: int,
        detokenizers: int,
        wires: Wires,
        meter: Meter,
        now: Callable[[], float] = time.monotonic,
        queue: Queue | None = None,
        readers: Readers | None = None,
        max_seconds: float = 0.0,
    ) -> None:
        """`max_seconds` bounds every request's `timeout`; 0: nothing does."""
        self._index, self._detokenizers = index, detokenizers
        self._turns = itertools.cycle(range(tokenizers))
        self._wires, self._meter, self._now = wires, meter, now
        self._queue = queue or Queue(meter)
        self._max_seconds = max_seconds
        self._uids = Uids(index)
        self._sequences: dict[int, Sequence] = {}
        self._streams: dict[int, Stream] = {}
        self._questions = Questions()
        self._cancels = Cancels()
        self._readers = readers or Readers(meter)
        self.closing = False
        """Nothing new is taken in."""
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

        Whether there is room is asked once; of a batch, the rest follows as the tokenizers get it. So does a
        request that `follows` another in one body.
        """
        if self.closing:
            raise faults.Refused(faults.CLOSING)
        if not follows:
            self._queue.check(job, self._now())
        stream = Stream(self._uids.take(job.uids), self._bounded(seeded(job)), inbox, self._now())
        first, *rest = submits(stream.job, stream.uid, self._index, stream.arrived)
        tokenizers = [next(self._turns) for _ in (first, *rest)]
        if follows:
            self._wires.post(tokenizers[0], first)
        elif not self._wires.offer(tokenizers[0], first):
            raise faults.Refused(faults.OVERLOADED)
        self._admit(stream, tokenizers, [Account() for _ in stream.job.positions], proven=True)
        self._meter.add("requests_total")
        self._queue.enter(stream)
        for tokenizer, message in zip(tokenizers[1:], rest, strict=True):
            self._wires.post(tokenizer, message)
        return stream

    def _bounded(self, job: Job) -> Job:
        if not self._max_seconds:
            return job
        return replace(job, timeout=min(job.timeout or self._max_seconds, self._max_seconds))

    async def ask(self, question: Callable[[int, int], Asking]) -> Reply:
        """Send what `question` makes of (uid, gateway) to a tokenizer; its reply. Raises `Refused`."""
        if self.closing:
            raise faults.Refused(faults.CLOSING)
        message, tokenizer = question(self._uids.take(), self._index), next(self._turns)
        if not self._wires.offer(tokenizer, message):
            raise faults.Refused(faults.OVERLOADED)
        return await self._questions.wait(message, tokenizer)

    def cancel(self, stream: Stream) -> None:
        """Ask for an early end; the terminal events still come."""
        stream.cancelled = True
        for sequence in stream.sequences.values():
            self._cancel(sequence)

    def leave(self, stream: Stream) -> None:
        """The client is gone: end the request, if it lives, without a word."""
        if not (stream.ended or stream.moved):
            self.cancel(stream)
            self._end(stream, "abort")

    def named(self, id: str) -> list[Stream]:
        """The live requests whose answers have this id; several, where clients chose the same."""
        return [stream for stream in self.streams if _answers_to(stream, id)]

    # Streams that outlive a connection.

    def detach(self, stream: Stream) -> None:
        """The client's connection is lost: let the stream go on for as long as it is retained."""
        if stream.ended or stream.moved:
            return
        stream.take()
        stream.detached, stream.inbox = self._now(), Inbox()
        for uid in stream.sequences:
            self._tell(uid, m.Detach(uid, self._index))

    def resume(self, job: Job, claim: Claim, received: Mapping[int, int], inbox: Inbox) -> Stream:
        """Take up a stream that was retained, here or at another gateway, for the client that is back.

        `job` is the one it was submitted as, made from the same body; `received` are the tokens the client
        has, for each position that has not ended. Raises `Refused`. A stream that is not found fails later,
        by an event.
        """
        if self.closing:
            raise faults.Refused(faults.CLOSING)
        ours = self._taken_over(claim, job)
        stream = Stream(claim.uid, self._bounded(claim.job(job)), inbox, min(claim.arrived, self._now()))
        accounts = [Account(tokens) for tokens in received.values()]
        self._admit(stream, self._tokenizers(stream.job), accounts, False, list(received))
        for uid, sequence in stream.sequences.items():
            sequence.attached = True
            if uid in ours:
                sequence.proven, sequence.tokenizer = True, ours[uid].tokenizer
                sequence.again = ours[uid].again
            self._attach(sequence)
        self._meter.add("streams_resumed_total")
        return stream

    def tick(self) -> None:
        """Once a second: streams whose client did not come back end, readers that take nothing are cut."""
        now = self._now()
        for stream in self.streams:
            if stream.detached is not None and now - stream.detached >= stream.job.retain:
                self.leave(stream)
        self._readers.cut_slow(now)

    def _taken_over(self, claim: Claim, job: Job) -> dict[int, Sequence]:
        """The live sequences of a stream that was here, which is forgotten. Raises `Refused`."""
        uids = range(claim.uid, claim.uid + job.uids)
        if not all(self._uids.may_be(uid) for uid in uids):
            raise faults.Refused(faults.NOT_FOUND)
        old = self._streams.get(claim.uid)
        if old is None or old.job.uids != job.uids or not claim.fits(old.job):
            if any(uid in self._sequences for uid in uids):
                raise faults.Refused(faults.NOT_FOUND)
            return {}
        ours = {uid: one for uid, one in old.sequences.items() if one.proven}
        self._forget(old)
        return ours

    def _tokenizers(self, job: Job) -> list[int]:
        return [next(self._turns) for _ in range(job.uids // job.width)]

    def _attach(self, sequence: Sequence) -> None:
        key = sequence.stream.job.key
        self._tell(sequence.uid, m.Attach(sequence.uid, self._index, sequence.account.tokens, key))

    def _tell(self, uid: int, message: m.ToDetokenizer) -> None:
        self._wires.tell(uid % self._detokenizers, message)

    def _on_detached(self, uid: int, known: bool) -> None:
        """Another gateway has the stream, or nobody knows it."""
        if not (sequence := self._sequences.get(uid)):
            return
        if known:
            self._forget(sequence.stream)
        elif not sequence.proven:
            self._deliver(sequence, _failure(uid, faults.NOT_FOUND), self._now())

    # What the back end does.

    def on_message(self, message: m.ToGateway) -> None:
        """Pass on what came from a tokenizer or a detokenizer; what nobody waits for is dropped."""
        now = self._now()
        match message:
            case m.Events(events):
                for event in events:
                    self._on_event(event, now)
            case m.Rejected(uid, fault):
                self._questions.settle(uid, fault)
                self._on_event(_failure(uid, fault), now)
            case m.Tokenized(uid) | m.Detokenized(uid) | m.CacheReport(uid):
                self._questions.settle(uid, message)
            case m.Detached(uid, known):
                self._on_detached(uid, known)

    def _on_event(self, event: m.Event, now: float) -> None:
        if event.finish_reason is not None:
            self._cancels.confirm(event.uid)
        if not (sequence := self._sequences.get(event.uid)):
            return
        if sequence.stream.detached is not None:
            self._on_unheard(sequence, event)
            return
        if not sequence.proven:
            self._prove(sequence)
        if event.fault is not None:
            self._deliver(sequence, event, now)
            return
        try:
            if news := sequence.account.take(event):
                self._deliver(sequence, news, now)
        except Gap:
            self._on_gap(sequence, event)

    def _on_unheard(self, sequence: Sequence, event: m.Event) -> None:
        """The detokenizer did not know yet that nobody listens; the event is kept there."""
        self._tell(sequence.uid, m.Detach(sequence.uid, self._index))
        if event.finish_reason is not None:
            self._finish(sequence, event.finish_reason, self._now())

    def _on_gap(self, sequence: Sequence, event: m.Event) -> None:
        """Of a resumed stream these are events for the connection before; the rest is asked for."""
        if not sequence.attached:
            _log.error("request %016x: %d after %d", event.uid, event.index, sequence.account.tokens)
            self._fail(sequence.stream, faults.INTERNAL)
        elif event.index < sequence.account.tokens:
            self._attach(sequence)

    def _prove(self, sequence: Sequence) -> None:
        """The detokenizer found the key right."""
        sequence.proven = True
        if sequence.stream.cancelled:
            self._cancel(sequence)

    def peer_lost(self, role: str, index: int, suspect: int = 0) -> None:
        """Submit again what a dead process may have had; an executor's is the scheduler's to replay.

        Who was at work on the same request at two deaths has it failed: it is taken for the cause.
        """
        if role not in ("tokenizer", "scheduler", "detokenizer"):
            return
        for stream in self.streams:
            if stream.uid <= suspect < stream.uid + stream.job.uids:
                self._strike(stream)
        for stream in self.streams:
            self._again(stream, role, index)
        for uid, tokenizer in self._cancels.lost(role, index):
            self._wires.post(tokenizer, m.Cancel(uid))
        if role == "tokenizer":
            for question in self._questions.lost(index, suspect):
                self._wires.post(index, question)

    def _strike(self, stream: Stream) -> None:
        stream.strikes += 1
        if stream.strikes >= MAX_STRIKES:
            self._fail(stream, faults.POISON)

    def _again(self, stream: Stream, role: str, index: int) -> None:
        held = [one for one in stream.sequences.values() if one.proven and self._held_by(one, role, index)]
        if held:
            self._resubmit(stream, {(one.uid - stream.uid) // stream.job.width for one in held})
        if role == "detokenizer":
            self._speak_again(stream, index)

    def _resubmit(self, stream: Stream, places: set[int]) -> None:
        """Submit some of a stream's prompts again; of their sequences, those that have ended stay ended."""
        known = {}
        if repeatable(stream.job):
            known = {uid: one.account.ids for uid, one in stream.sequences.items()}
        messages = submits(stream.job, stream.uid, self._index, stream.arrived, known)
        for place in sorted(places):
            uids = range(messages[place].uid, messages[place].uid + stream.job.width)
            living = [stream.sequences[uid] for uid in uids if uid in stream.sequences]
            self._wires.post(living[0].tokenizer, messages[place])
            self._meter.add("requests_resubmitted_total")
            for sequence in living:
                sequence.again = True
            for position in stream.job.positions:
                if stream.uid + position in uids and stream.uid + position not in stream.sequences:
                    self._wires.post(living[0].tokenizer, m.Cancel(stream.uid + position))
            if stream.cancelled:
                for sequence in living:
                    self._cancel(sequence)

    def _speak_again(self, stream: Stream, detokenizer: int) -> None:
        """Tell a new detokenizer where the client is, where it is not where its request says."""
        for uid, sequence in stream.sequences.items():
            if uid % self._detokenizers == detokenizer:
                if stream.detached is not None:
                    self._tell(uid, m.Detach(uid, self._index))
                elif sequence.attached:
                    self._attach(sequence)

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
        self.closing = True

    def hand_over(self) -> None:
        """Forget the streams whose clients are lost: another gateway will be asked for them."""
        for stream in self.streams:
            if stream.detached is not None:
                self._forget(stream)

    async def drained(self, timeout: float) -> None:
        """Wait until nothing lives; what still does after `timeout` seconds fails."""
        try:
            await asyncio.wait_for(self._empty.wait(), timeout)
        except TimeoutError:
            for stream in self.streams:
                self._fail(stream, faults.CLOSING)
        self._questions.fail(faults.CLOSING)

    # Inside.

    def _admit(
        self,
        stream: Stream,
        tokenizers: list[int],
        accounts: list[Account],
        proven: bool,
        positions: list[int] | None = None,
    ) -> None:
        for position, account in zip(positions or stream.job.positions, accounts, strict=True):
            uid, tokenizer = stream.uid + position, tokenizers[position // stream.job.width]
            sequence = Sequence(uid, tokenizer, stream, account, proven)
            stream.sequences[uid] = self._sequences[uid] = sequence
        self._streams[stream.uid] = stream
        self._readers.watch(stream.inbox)
        self._empty.clear()
        self._count_live()

    def _cancel(self, sequence: Sequence) -> None:
        if sequence.proven:
            self._cancels.add(sequence.uid, sequence.tokenizer)
            self._wires.post(sequence.tokenizer, m.Cancel(sequence.uid))

    def _fail(self, stream: Stream, fault: m.Fault) -> None:
        """End a request by a failure of ours."""
        sequence = next(iter(stream.sequences.values()))
        self._cancel(sequence)
        self._deliver(sequence, _failure(sequence.uid, fault), self._now())

    def _forget(self, stream: Stream) -> None:
        """Its client has it elsewhere; it lives on there."""
        stream.moved = True
        stream.take()
        stream.inbox.put(stream)
        self._drop(stream)

    def _deliver(self, sequence: Sequence, event: m.Event, now: float) -> None:
        stream = sequence.stream
        if stream.job.lead and sequence.last is None and event.index == 0:
            event = replace(event, prompt_text=stream.job.lead)
        if stream.job.stream and event.token_ids:
            self._time(sequence, now)
        sequence.last = now
        if stream.first is None:
            stream.first = now
            self._queue.leave(stream, now)
        stream.tokens += len(event.token_ids) // ID_BYTES
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
        if sequence.again:  # another copy may run
            self._wires.post(sequence.tokenizer, m.Cancel(sequence.uid))
        if reason == "error":
            self.cancel(stream)
        if reason == "error" or not stream.sequences:
            self._meter.observe("request_latency_seconds", now - stream.arrived)
            self._end(stream, reason)

    def _end(self, stream: Stream, reason: m.FinishReason) -> None:
        stream.ended = True
        self._meter.add(_ENDINGS[reason])
        _log_end(stream, reason, self._now())
        self._drop(stream)

    def _drop(self, stream: Stream) -> None:
        self._queue.leave(stream, self._now())
        for uid in stream.sequences:
            del self._sequences[uid]
        stream.sequences.clear()
        del self._streams[stream.uid]
        if not self._streams:
            self._empty.set()
        self._count_live()

    def _count_live(self) -> None:
        self._meter.set("requests_live", len(self._streams))


def _log_end(stream: Stream, reason: m.FinishReason, now: float) -> None:
    """One line for each request, at level info; times are milliseconds."""
    if _log.isEnabledFor(logging.INFO):
        first = "-" if stream.first is None else f"{(stream.first - stream.arrived) * 1000:.0f}"
        _log.info(
            "request id=%s uid=%016x status=%s tokens=%d ttft_ms=%s duration_ms=%.0f",
            stream.job.request_id or "-", stream.uid, reason, stream.tokens, first,
            (now - stream.arrived) * 1000,
        )  # fmt: skip


def _failure(uid: int, fault: m.Fault) -> m.Event:
    return m.Event(uid, 0, "", finish_reason="error", fault=fault)


def _answers_to(stream: Stream, id: str) -> bool:
    if stream.job.request_id is not None:
        return stream.job.request_id == id
    return id.endswith(f"-{stream.uid:016x}")
