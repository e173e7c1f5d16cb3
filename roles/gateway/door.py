"""The door: every live request of this gateway, from its `Submit` to its one terminal event.

The core of the role, free of HTTP and of sockets.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from stretto.roles import messages as m
from stretto.roles.gateway import faults
from stretto.roles.gateway.claim import Claim
from stretto.roles.gateway.comebacks import Comebacks
from stretto.roles.gateway.job import Job
from stretto.roles.gateway.journal import Account, Gap
from stretto.roles.gateway.live import Live, Wires, failure
from stretto.roles.gateway.questions import Asking, Questions, Reply
from stretto.roles.gateway.queue import Queue
from stretto.roles.gateway.readers import Readers
from stretto.roles.gateway.resubmission import Resubmission
from stretto.roles.gateway.stream import Inbox, Stream
from stretto.roles.gateway.submits import Uids, seeded, submits
from stretto.roles.metrics import Meter


class Door:
    """Submits requests, hands their events out, and makes sure that each ends exactly once.

    It keeps what is needed to submit a request again (the job, the seed, what was delivered), so that no
    death behind it ends a request; see `resubmission`.

    A stream whose job is to be retained outlives its client: it is `detach`ed when the connection is lost,
    and `resume`d here or at another gateway by whoever knows its key; see `comebacks`.
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
        self._turns = itertools.cycle(range(tokenizers))
        self._wires, self._meter, self._now = wires, meter, now
        self._queue = queue or Queue(meter)
        self._max_seconds = max_seconds
        self._uids = Uids(index)
        self._live = Live(index, detokenizers, wires, meter, self._queue, now, self._on_empty)
        self._comebacks = Comebacks(self._live, self._uids)
        self._resubmission = Resubmission(self._live, tokenizers)
        self._questions = Questions()
        self._readers = readers or Readers(meter)
        self.closing = False
        """Nothing new is taken in."""
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def live(self) -> int:
        """Requests that have not ended."""
        return len(self._live)

    @property
    def streams(self) -> list[Stream]:
        """Those requests."""
        return self._live.all()

    # What clients do.

    def submit(self, job: Job, inbox: Inbox, follows: bool = False) -> Stream:
        """Accept a request; from here on its stream ends exactly once. Raises `Refused`.

        Whether there is room is asked once; of a batch, the rest follows as the tokenizers get it. So does a
        request that `follows` another in one body.
        """
        self._check_open()
        if not follows:
            self._queue.check(job, self._now())
        stream = Stream(self._uids.take(job.uids), self._bounded(seeded(job)), inbox, self._now())
        first, *rest = submits(stream.job, stream.uid, self._live.index, stream.arrived)
        tokenizers = [next(self._turns) for _ in (first, *rest)]
        if follows:
            self._wires.post(tokenizers[0], first)
        elif not self._wires.offer(tokenizers[0], first):
            raise faults.Refused(faults.OVERLOADED)
        self._live.admit(stream, tokenizers, [Account() for _ in stream.job.positions], proven=True)
        self._readers.watch(inbox)
        self._meter.add("requests_total")
        self._queue.enter(stream)
        for tokenizer, message in zip(tokenizers[1:], rest, strict=True):
            self._wires.post(tokenizer, message)
        return stream

    def _check_open(self) -> None:
        if self.closing:
            raise faults.Refused(faults.CLOSING)

    def _bounded(self, job: Job) -> Job:
        if not self._max_seconds:
            return job
        return replace(job, timeout=min(job.timeout or self._max_seconds, self._max_seconds))

    async def ask(self, question: Callable[[int, int], Asking]) -> Reply:
        """Send what `question` makes of (uid, gateway) to a tokenizer; its reply. Raises `Refused`."""
        self._check_open()
        message, tokenizer = question(self._uids.take(), self._live.index), next(self._turns)
        if not self._wires.offer(tokenizer, message):
            raise faults.Refused(faults.OVERLOADED)
        return await self._questions.wait(message, tokenizer)

    def cancel(self, stream: Stream) -> None:
        """Ask for an early end; the terminal events still come."""
        self._live.cancel_all(stream)

    def leave(self, stream: Stream) -> None:
        """The client is gone: end the request, if it lives, without a word."""
        self._live.leave(stream)

    def named(self, id: str) -> list[Stream]:
        """The live requests whose answers have this id; several, where clients chose the same."""
        return [stream for stream in self.streams if _answers_to(stream, id)]

    def detach(self, stream: Stream) -> None:
        """The client's connection is lost: let the stream go on for as long as it is retained.

        Not in a server that ends: nobody can come back to it.
        """
        (self._live.leave if self.closing else self._comebacks.detach)(stream)

    def resume(self, job: Job, claim: Claim, received: Mapping[int, int], inbox: Inbox) -> Stream:
        """Take up a stream that was retained, here or at another gateway, for the client that is back.

        `job` is the one it was submitted as, made from the same body; `received` are the tokens the client
        has, for each position that has not ended. Raises `Refused`. A stream that is not found fails later,
        by an event.
        """
        self._check_open()
        if self._resubmission.poisonous(range(claim.uid, claim.uid + job.uids)):
            raise faults.Refused(faults.POISON)
        stream = Stream(claim.uid, self._bounded(claim.job(job)), inbox, min(claim.arrived, self._now()))
        tokenizers = [next(self._turns) for _ in range(job.uids // job.width)]
        self._comebacks.resume(stream, claim, received, tokenizers)
        self._readers.watch(inbox)
        return stream

    def tick(self) -> None:
        """Once a second: streams whose client did not come back end, readers that take nothing are cut."""
        now = self._now()
        self._comebacks.expire(now)
        self._readers.cut_slow(now)

    # What the back end does.

    def on_message(self, message: m.ToGateway) -> None:
        """Pass on what came from a tokenizer or a detokenizer; what nobody waits for is dropped."""
        match message:
            case m.Events(events):
                for event in events:
                    self._on_event(event)
            case m.Rejected(uid, fault):
                self._questions.settle(uid, fault)
                self._on_event(failure(uid, fault))
            case m.Tokenized(uid) | m.Detokenized(uid) | m.CacheReport(uid):
                self._questions.settle(uid, message)
            case m.Attached(uid):
                self._comebacks.on_attached(uid)
            case m.Detached(uid, known):
                self._comebacks.on_detached(uid, known)

    def _on_event(self, event: m.Event) -> None:
        if event.finish_reason is not None:
            self._live.cancels.confirm(event.uid)
        if not (sequence := self._live.sequences.get(event.uid)):
            return
        if sequence.stream.detached is not None:
            self._comebacks.on_unheard(sequence, event)
            return
        if not sequence.proven:
            self._comebacks.prove(sequence)
        if event.fault is not None:
            self._live.deliver(sequence, event)
            return
        try:
            if news := sequence.account.take(event):
                self._live.deliver(sequence, news)
        except Gap:
            self._comebacks.on_gap(sequence, event)

    def peer_lost(self, role: str, index: int, suspect: int = 0) -> None:
        """Submit again what a dead process may have had; an executor's is the scheduler's to replay."""
        if role not in ("tokenizer", "scheduler", "detokenizer"):
            return
        self._resubmission.peer_lost(role, index, suspect)
        if role == "detokenizer":
            self._comebacks.speak_again(index)
        if role == "tokenizer":
            for question in self._questions.lost(index, suspect):
                self._wires.post(index, question)

    # Shutting down.

    def stop_intake(self) -> None:
        """Refuse what comes from now on; end what nobody can come back for."""
        self.closing = True
        self._comebacks.give_up()

    def hand_over(self) -> None:
        """Forget the streams whose clients are lost: another gateway will be asked for them."""
        self._comebacks.hand_over()

    async def drained(self, timeout: float) -> None:
        """Wait until nothing lives; what still does after `timeout` seconds fails."""
        try:
            await asyncio.wait_for(self._empty.wait(), timeout)
        except TimeoutError:
            for stream in self.streams:
                self._live.fail(stream, faults.CLOSING)
        self._questions.fail(faults.CLOSING)

    def _on_empty(self, empty: bool) -> None:
        (self._empty.set if empty else self._empty.clear)()


def _answers_to(stream: Stream, id: str) -> bool:
    if stream.job.request_id is not None:
        return stream.job.request_id == id
    return id.endswith(f"-{stream.uid:016x}")
