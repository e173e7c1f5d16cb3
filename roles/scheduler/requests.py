"""Every request that lives, and every way in and out: the queue, the batch, deadlines, beam searches."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np

from stretto.roles import messages as m
from stretto.roles.scheduler.batch import Batch
from stretto.roles.scheduler.counts import Counts
from stretto.roles.scheduler.deadlines import Deadlines
from stretto.roles.scheduler.limits import Limits
from stretto.roles.scheduler.outbox import Outbox
from stretto.roles.scheduler.pages import Ints
from stretto.roles.scheduler.policy import Queue
from stretto.roles.scheduler.searches import Search, Searches, choices_of, output_of, report
from stretto.roles.scheduler.sequence import Gone, Sequence, Waiting
from stretto.roles.scheduler.step import Draft, Flight
from stretto.roles.scheduler.table import Slots

MAX_DEATHS = 2
"""A request that was running at this many losses of the device is suspected of causing them, and fails."""


class Requests:
    """Owns the queue and the batch, and moves sequences between them; all but `counts` is to be read only."""

    def __init__(self, limits: Limits) -> None:
        self.counts = Counts()
        self.live: dict[int, Sequence] = {}
        """Every sequence that has not ended, by uid."""
        self.searches = Searches()
        self.deadlines = Deadlines()
        self.outbox = Outbox(limits.detokenizers)
        self._submitted = 0
        self._renew(limits)

    def _renew(self, limits: Limits) -> None:
        self.limits = limits
        self.queue = Queue()
        self.batch = Batch(limits, put_back=self._put_back)

    def lives(self, sequence: Sequence) -> bool:
        """Whether it has not ended."""
        return self.live.get(sequence.uid) is sequence

    # In.

    def submit(self, request: m.Request) -> None:
        """Queue a request; one that can never fit ends at once, one that lives already is ignored."""
        choices, prompt_tokens = choices_of(request), len(request.prompt_ids) // 4
        if any(self._find(uid) is not None for uid in choices):
            return
        fault = self.limits.refusal(prompt_tokens, request.max_tokens)
        for uid in choices:
            self.outbox.open(m.Open(uid, prompt_tokens, output_of(request, uid)))
            if fault is not None:
                self.outbox.end(m.End(uid, "error", fault=fault))
            elif request.deadline is not None:
                self.deadlines.add(uid, request.deadline)
        if fault is None:
            self._start(request)

    def _start(self, request: m.Request) -> None:
        tokens = np.frombuffer(request.prompt_ids, np.int32)
        limit, age = self.limits.end_of(len(tokens), request.max_tokens), self._submitted
        self._submitted += 1
        if request.beams is not None:
            search = Search(request, request.beams, limit - len(tokens), age)
            self.searches.begin(search)
            self._step(search)
        else:
            self._wait(Sequence(request, age, limit, Waiting(tokens)))

    def _wait(self, sequence: Sequence) -> None:
        self.live[sequence.uid] = sequence
        self._enqueue(sequence)

    def _enqueue(self, sequence: Sequence) -> None:
        """Let a sequence wait for its turn, or for its leader's prompt."""
        uid = sequence.request.leader
        leader = None if uid is None else self.live.get(uid)
        if leader is None or leader.published:
            self.queue.add(sequence)
        else:
            leader.shares = sequence.shares = True
            self.queue.hold(sequence)

    def _put_back(self, sequence: Sequence) -> None:
        self.counts.retractions += 1
        self._enqueue(sequence)

    def admit(self, draft: Draft) -> None:
        """Start waiting sequences, in the queue's order, as far as budget, slots and pages go."""
        while draft.open and (head := self.queue.head()) is not None:
            placement = self.batch.place(head)
            if placement is None:
                return
            self.queue.remove(head)
            self.batch.admit(head, placement, draft)
            if head.cached is None:
                head.cached = placement.length
                if head.request.leader is None:
                    self.counts.prompt_tokens += head.prompt_tokens
                    self.counts.cached_tokens += placement.length

    def release_followers(self, flight: Flight) -> None:
        """Let those wait like anyone that waited for a prompt which is there now."""
        for sequence, _ in flight.prefilled:
            if sequence.published:
                self.queue.release(sequence.uid)

    # What comes of them.

    def tell_tokens(self, uids: Slots, ids: Ints, indices: Slots, told: list[m.TokenLogprobs]) -> None:
        """One new token for each uid: to the detokenizers, or to the beam search it belongs to."""
        if self.searches:
            told, outer = self.searches.answer(told), uids >= 0
            uids, ids, indices = uids[outer], ids[outer], indices[outer]
        if len(uids):
            self.counts.generated_tokens += len(uids)
            self.outbox.tokens(uids, ids, indices, told)

    def tell_prompt(self, part: m.PromptLogprobs) -> None:
        """Log-probabilities of a part of a prompt."""
        uid = part.uid if part.uid >= 0 else self.searches.outer(part.uid)
        if uid is not None:
            self.outbox.score(msgspec.structs.replace(part, uid=uid))

    # Beam searches.

    def carry_on(self) -> None:
        """Take a step further each beam search that has what it waited for."""
        for search in self.searches.ready():
            if search.fault is not None:
                for uid in list(search.choices):
                    self.cut(uid, "error", search.fault)
            elif search.answered():
                self.counts.generated_tokens += report(search, self.outbox)
                for uid in list(search.choices):
                    self._forget(search, uid)
            else:
                self._step(search)

    def _step(self, search: Search) -> None:
        prompt, salt = search.request.prompt_ids, search.request.cache_salt
        for beam in search.beams.dropped:
            self.batch.memory.discard(np.frombuffer(prompt + beam.ids, np.int32), salt)
        for request in self.searches.step(search):
            tokens = np.frombuffer(request.prompt_ids, np.int32)
            limit = self.limits.end_of(len(tokens), request.max_tokens)
            waiting = Waiting(tokens)
            self._wait(Sequence(request, search.age, limit, waiting, cached=search.cached, shares=True))

    # Out.

    def cut(self, uid: int, reason: m.FinishReason | None, fault: m.Fault | None = None) -> None:
        """End a request or a choice of a beam search wherever it is; silently where there is no reason.

        Unknown uids are ignored.
        """
        holder = self._find(uid)
        match holder:
            case Sequence():
                self._leave(holder)
            case Search():
                self._forget(holder, uid)
            case None:
                return
        if reason is not None:
            self.outbox.end(m.End(uid, reason, cached_tokens=holder.cached or 0, fault=fault))

    def expire(self, uid: int) -> None:
        """Fail a request whose deadline has come."""
        holder = self._find(uid)
        assert holder is not None
        assert holder.request.deadline is not None
        seconds = holder.request.deadline - holder.request.arrived
        text = f"The request did not end within its timeout of {seconds:g} seconds."
        self.cut(uid, "error", m.Fault(408, text, type="timeout_error", code="timeout"))

    def _find(self, uid: int) -> Sequence | Search | None:
        return self.live.get(uid) or self.searches.of(uid)

    def lose(self, detokenizer: int) -> None:
        """Stop all whose tokens go to this detokenizer, silently."""
        for uid in [*self.live, *self.searches.choices]:
            if uid >= 0 and uid % self.limits.detokenizers == detokenizer:
                self.cut(uid, None)

    def fail(self, sequence: Sequence, fault: m.Fault) -> None:
        """End a sequence with an error."""
        self.end(sequence, m.End(sequence.uid, "error", cached_tokens=sequence.cached or 0, fault=fault))

    def end(self, sequence: Sequence, end: m.End) -> None:
        """End a sequence, and say so."""
        if sequence.uid < 0:
            self.searches.end(end)
        else:
            self.outbox.end(end)
        self._leave(sequence)

    def _forget(self, search: Search, choice: int) -> None:
        """A choice of a beam search no longer lives, and the search with the last of them."""
        self.deadlines.remove(choice)
        for inner in self.searches.leave(search, choice):
            self._leave(self.live[inner])

    def _leave(self, sequence: Sequence) -> None:
        """The sequence no longer lives; its slot and pages are freed as soon as they can be."""
        del self.live[sequence.uid]
        self.deadlines.remove(sequence.uid)
        self.queue.release(sequence.uid)
        match sequence.state:
            case Waiting():
                self.queue.remove(sequence)
                sequence.state = Gone()
            case _:
                self.batch.dismiss(sequence)

    # The device is lost.

    def replay(self, pages: int) -> None:
        """Queue what was running again, for an empty device of so many pages; see `Core.restart`."""
        survivors = self.batch.abandon()
        for sequence in survivors:
            sequence.deaths += 1
        waiting = [*survivors, *self.queue]
        self._renew(replace(self.limits, pages=pages))
        for sequence in waiting:
            sequence.published = False
        for sequence in waiting:
            self._enqueue(sequence)
        for sequence in waiting:
            if self.lives(sequence):
                self._recheck(sequence)

    def _recheck(self, sequence: Sequence) -> None:
        """Fail what killed the device twice, or no longer fits."""
        request, fault = sequence.request, None
        if sequence.deaths >= MAX_DEATHS:
            fault = m.Fault(
                500,
                f"The request was running both times the executor died, so it is not tried a third time "
                f"({sequence.deaths} of {MAX_DEATHS}).",
                type="server_error",
                code="poison_request",
            )
        else:
            fault = self.limits.refusal(sequence.prompt_tokens, request.max_tokens)
        sequence.limit = self.limits.end_of(sequence.prompt_tokens, request.max_tokens)
        assert isinstance(sequence.state, Waiting)
        if fault is not None:
            self.fail(sequence, fault)
        elif len(sequence.state.tokens) >= max(sequence.limit, sequence.prompt_tokens + 1):
            self.end(sequence, m.End(sequence.uid, "length", cached_tokens=sequence.cached or 0))
