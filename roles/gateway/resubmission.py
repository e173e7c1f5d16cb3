"""What a dead process may have had is submitted again, under the same uids.

Who has it after all ignores that; what comes twice is cut (`journal`).
"""

from __future__ import annotations

from stretto.roles import messages as m
from stretto.roles.gateway import faults
from stretto.roles.gateway.live import Live
from stretto.roles.gateway.questions import MAX_STRIKES
from stretto.roles.gateway.stream import Sequence, Stream
from stretto.roles.gateway.submits import repeatable, submits

MOST_SUSPECTS = 1024


class Resubmission:
    """What is to be done after the death of a tokenizer, the scheduler or a detokenizer."""

    def __init__(self, live: Live, tokenizers: int) -> None:
        self._live, self._tokenizers = live, tokenizers
        self._strikes: dict[int, int] = {}
        """By uid, of all gateways: processes that died at work on it, those named last last."""

    def poisonous(self, uids: range) -> bool:
        """One of these was taken for the cause of deaths."""
        return any(self._strikes.get(uid, 0) >= MAX_STRIKES for uid in uids)

    def peer_lost(self, role: str, index: int, suspect: int) -> None:
        """Submit again what it may have had, repeat the cancels that it may have taken along.

        Who was at work on the same request at two deaths has it failed: it is taken for the cause. One that
        is nobody's here is ended all the same: it may be nobody's anywhere, kept for a client to come back.
        """
        if suspect:
            self._suspect(suspect)
        for stream in self._live.all():
            held = [
                one for one in stream.sequences.values() if one.proven and self._held_by(one, role, index)
            ]
            if held:
                self._resubmit(stream, {(one.uid - stream.uid) // stream.job.width for one in held})
        for uid, tokenizer in self._live.cancels.lost(role, index):
            self._live.wires.post(tokenizer, m.Cancel(uid))

    def _suspect(self, uid: int) -> None:
        strikes = self._strikes[uid] = self._strikes.pop(uid, 0) + 1
        if len(self._strikes) > MOST_SUSPECTS:
            del self._strikes[next(iter(self._strikes))]
        for stream in self._live.all():
            if stream.uid <= uid < stream.uid + stream.job.uids:
                self._strike(stream)
                return
        if strikes >= MAX_STRIKES:
            tokenizer = uid % self._tokenizers
            self._live.cancels.add(uid, tokenizer)
            self._live.wires.post(tokenizer, m.Cancel(uid))

    def _strike(self, stream: Stream) -> None:
        stream.strikes += 1
        if stream.strikes >= MAX_STRIKES:
            self._live.fail(stream, faults.POISON)

    def _held_by(self, sequence: Sequence, role: str, index: int) -> bool:
        match role:
            case "scheduler":
                return True
            case "tokenizer":
                unheard = sequence.last is None or sequence.again  # the last time may not have got through
                return sequence.tokenizer == index and unheard
            case "detokenizer":
                return sequence.uid % self._live.detokenizers == index
        return False

    def _resubmit(self, stream: Stream, places: set[int]) -> None:
        """Submit some of a stream's prompts again; of their sequences, those that have ended stay ended."""
        known = {}
        if repeatable(stream.job):
            known = {uid: one.account.ids for uid, one in stream.sequences.items()}
        messages = submits(stream.job, stream.uid, self._live.index, stream.arrived, known)
        for place in sorted(places):
            self._send(stream, messages[place])
            self._live.meter.add("requests_resubmitted_total")

    def _send(self, stream: Stream, message: m.Submit) -> None:
        uids = range(message.uid, message.uid + stream.job.width)
        living = [stream.sequences[uid] for uid in uids if uid in stream.sequences]
        tokenizer = living[0].tokenizer
        self._live.wires.post(tokenizer, message)
        for sequence in living:
            sequence.again = True
        for position in stream.job.positions:
            if stream.uid + position in uids and stream.uid + position not in stream.sequences:
                self._live.wires.post(tokenizer, m.Cancel(stream.uid + position))
        if stream.cancelled:
            for sequence in living:
                self._live.cancel(sequence)
