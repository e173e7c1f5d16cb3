"""Streams that outlive a connection: their clients go, and come back, here or at another gateway."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from stretto.roles import messages as m
from stretto.roles.gateway import faults
from stretto.roles.gateway.claim import Claim
from stretto.roles.gateway.job import Job
from stretto.roles.gateway.journal import Account
from stretto.roles.gateway.live import Live, failure
from stretto.roles.gateway.stream import Inbox, Stream
from stretto.roles.gateway.stream import Sequence as Sequenced
from stretto.roles.gateway.submits import Uids

_log = logging.getLogger(__name__)


class Comebacks:
    """Detaches streams from their clients and attaches them again; the detokenizers keep what was said."""

    def __init__(self, live: Live, uids: Uids) -> None:
        self._live, self._uids = live, uids
        self._handing_over = False

    # What clients do.

    def detach(self, stream: Stream) -> None:
        """The client's connection is lost: let the stream go on for as long as it is retained."""
        if stream.ended or stream.moved:
            return
        stream.take()
        self._live.release(stream)
        stream.detached, stream.inbox = self._live.now(), Inbox()
        for uid in stream.sequences:
            self._detach(uid)
        if self._handing_over:
            self._live.forget(stream)

    def resume(
        self, stream: Stream, claim: Claim, received: Mapping[int, int], tokenizers: Sequence[int]
    ) -> None:
        """Ask for the rest of a stream; see `Door.resume`. Raises `Refused`, having changed nothing."""
        ours = self._taken_over(claim, stream.job)
        accounts = [Account(tokens) for tokens in received.values()]
        self._live.admit(stream, tokenizers, accounts, False, list(received))
        for uid, sequence in stream.sequences.items():
            sequence.attached = True
            if uid in ours:
                sequence.proven, sequence.tokenizer = True, ours[uid].tokenizer
                sequence.again = ours[uid].again
            self._attach(sequence)
        self._live.meter.add("streams_resumed_total")

    def _taken_over(self, claim: Claim, job: Job) -> dict[int, Sequenced]:
        """The live sequences of a stream that was here, which is forgotten. Raises `Refused`."""
        uids = range(claim.uid, claim.uid + job.uids)
        if not all(self._uids.may_be(uid) for uid in uids):
            raise faults.Refused(faults.NOT_FOUND)
        old = self._live.streams.get(claim.uid)
        if old is None or old.job.uids != job.uids or not claim.fits(old.job):
            if any(uid in self._live.sequences for uid in uids):
                raise faults.Refused(faults.NOT_FOUND)
            return {}
        ours = {uid: one for uid, one in old.sequences.items() if one.proven}
        self._live.forget(old)
        return ours

    def give_up(self) -> None:
        """End the streams whose clients are lost: nobody can come back to a server that ends."""
        for stream in self._live.all():
            if stream.detached is not None:
                self._live.leave(stream)

    def expire(self, now: float) -> None:
        """End the streams whose clients did not come back in time."""
        for stream in self._live.all():
            if stream.detached is not None and now - stream.detached >= stream.job.retain:
                self._live.leave(stream)

    def hand_over(self) -> None:
        """Forget the streams whose clients are lost, from now on: another gateway will be asked for them."""
        self._handing_over = True
        for stream in self._live.all():
            if stream.detached is not None:
                self._live.forget(stream)

    # What detokenizers say.

    def on_attached(self, uid: int) -> None:
        """The stream is here, though it says nothing yet."""
        if (sequence := self._live.sequences.get(uid)) and not sequence.proven:
            self.prove(sequence)

    def on_detached(self, uid: int, known: bool) -> None:
        """Another gateway has the stream, or nobody knows it."""
        if not (sequence := self._live.sequences.get(uid)):
            return
        if known:
            self._live.forget(sequence.stream)
        elif not sequence.proven:
            self._live.deliver(sequence, failure(uid, faults.NOT_FOUND))

    def on_unheard(self, sequence: Sequenced, event: m.Event) -> None:
        """The detokenizer did not know yet that nobody listens; the event is kept there."""
        self._detach(sequence.uid)
        if event.finish_reason is not None:
            self._live.finish(sequence, event.finish_reason, event.usage)

    def on_gap(self, sequence: Sequenced, event: m.Event) -> None:
        """Of a resumed stream these are events for the connection before; the rest is asked for."""
        if not sequence.attached:
            _log.error("request %016x: %d after %d", event.uid, event.index, sequence.account.tokens)
            self._live.fail(sequence.stream, faults.INTERNAL)
        elif event.index < sequence.account.tokens:
            self._attach(sequence)

    def prove(self, sequence: Sequenced) -> None:
        """The detokenizer found the key right."""
        sequence.proven = True
        if sequence.stream.cancelled:
            self._live.cancel(sequence)

    def speak_again(self, detokenizer: int) -> None:
        """Tell a new detokenizer where clients are, where they are not where their requests say."""
        for uid, sequence in list(self._live.sequences.items()):
            if uid % self._live.detokenizers != detokenizer:
                continue
            if sequence.stream.detached is not None:
                self._detach(uid)
            elif sequence.attached:
                self._attach(sequence)

    def _detach(self, uid: int) -> None:
        self._live.tell(uid, m.Detach(uid, self._live.index))

    def _attach(self, sequence: Sequenced) -> None:
        key = sequence.stream.job.key
        attach = m.Attach(sequence.uid, self._live.index, sequence.account.tokens, key)
        self._live.tell(sequence.uid, attach)
