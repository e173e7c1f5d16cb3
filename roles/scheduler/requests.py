"""Every request that lives, and every way in and out: the queue, the batch, deadlines, beam searches."""

from __future__ import annotations

from collections.abc import Sequence as Several

import msgspec
import numpy as np

from stretto.roles import messages as m
from stretto.roles.deadlines import Deadlines
from stretto.roles.scheduler.batch import Batch
from stretto.roles.scheduler.counts import Counts
from stretto.roles.scheduler.limits import Limits
from stretto.roles.scheduler.memory import Placement
from stretto.roles.scheduler.outbox import Outbox
from stretto.roles.scheduler.pages import Ints
from stretto.roles.scheduler.policy import Queue
from stretto.roles.scheduler.recall import kept, known_output
from stretto.roles.scheduler.searches import Search, Searches, choices_of, output_of, report
from stretto.roles.scheduler.sequence import Gone, Sequence, Waiting
from stretto.roles.scheduler.step import Draft, Flight
from stretto.roles.scheduler.suspects import Suspects
from stretto.roles.scheduler.table import Slots

_NOTHING = np.empty(0, np.int32)


class Requests:
    """Owns the queue and the batch, and moves sequences between them; all but `counts` is to be read only."""

    def __init__(self, limits: Limits) -> None:
        self.counts = Counts()
        self.live: dict[int, Sequence] = {}
        """Every sequence that has not ended, by uid."""
        self.searches = Searches()
        self.deadlines = Deadlines()
        self.outbox = Outbox(limits.detokenizers)
        self.suspects = Suspects()
        self._submitted = 0
        self.renew(limits)

    def renew(self, limits: Limits) -> None:
        """Start with an empty batch and an empty queue."""
        self.limits = limits
        self.batch = Batch(limits, put_back=self._put_back)
        self.queue = Queue(limits, self.batch.known)

    def lives(self, sequence: Sequence) -> bool:
        """Whether it has not ended."""
        return self.live.get(sequence.uid) is sequence

    # In.

    def submit(self, request: m.Request, choices: Several[int] | None = None) -> None:
        """Queue a request, or `choices` of it; what can never fit ends at once, what lives is ignored."""
        choices = choices_of(request) if choices is None else choices
        news = [uid for uid in choices if self._find(uid) is None]
        if not news:
            return
        prompt_tokens = len(request.prompt_ids) // 4
        fault = self.limits.refusal(prompt_tokens, request.max_tokens)
        room = self.limits.end_of(prompt_tokens, request.max_tokens) - prompt_tokens
        known = known_output(request, room) if request.generated else _NOTHING
        if request.generated:
            request = msgspec.structs.replace(request, generated=b"")
        for uid in news:
            self.announce(request, uid, known)
            if fault is not None:
                self.outbox.end(m.End(uid, "error", fault=fault))
        if fault is None:
            self._start(request, news, known)

    def announce(self, request: m.Request, uid: int, known: Ints = _NOTHING) -> None:
        """Tell a reader what comes, and the tokens that are known already."""
        prompt_tokens, output = len(request.prompt_ids) // 4, output_of(request, uid)
        self.outbox.open(m.Open(uid, prompt_tokens, output, kept(request), known.tobytes()))

    def _start(self, request: m.Request, choices: Several[int], known: Ints) -> None:
        age = self._submitted
        self._submitted += 1
        if request.beams is not None:
            self._search(request, request.beams, choices, age)
            return
        self._watch(request, choices)
        prompt = np.frombuffer(request.prompt_ids, np.int32)
        limit = self.limits.end_of(len(prompt), request.max_tokens)
        tokens = np.concatenate([prompt, known]) if len(known) else prompt
        sequence = Sequence(request, age, limit, Waiting(tokens))
        if len(known):
            sequence.scored = len(prompt)  # they come before the first token
        self._wait(sequence)

    def _watch(self, request: m.Request, choices: Several[int]) -> None:
        if request.deadline is not None:
            for uid in choices:
                self.deadlines.add(uid, request.deadline)

    def restart(self, sequence: Sequence) -> None:
        """Compute a sequence again from its prompt's first token on."""
        self._leave(sequence)
        self._watch(sequence.request, [sequence.uid])
        tokens = np.frombuffer(sequence.request.prompt_ids, np.int32)
        fresh = Sequence(sequence.request, sequence.age, sequence.limit, Waiting(tokens), sequence.cached)
        fresh.shares = sequence.shares
        self._wait(fresh)

    def _wait(self, sequence: Sequence) -> None:
        self.live[sequence.uid] = sequence
        self.enqueue(sequence)

    def enqueue(self, sequence: Sequence) -> None:
        """Let a sequence wait for its turn, or for its leader's prompt."""
        uid = sequence.request.leader
        leader = None if uid is None else self.live.get(uid)
        if leader is None or leader.published:
            self.batch.prefetch(sequence)
            self.queue.add(sequence)
        else:
            leader.shares = sequence.shares = True
            self.queue.hold(sequence, leader.uid)

    def _put_back(self, sequence: Sequence) -> None:
        self.counts.retractions += 1
        self.queue.interrupt(sequence)
        self.enqueue(sequence)

    def admit(self, draft: Draft) -> None:
        """Start waiting sequences, in the queue's order, as far as budget, slots and pages go."""
        if self.suspects:
            self._admit_suspect(draft)
            return
        while draft.open and not self.batch.full and (head := self.queue.head()) is not None:
            if self.queue.step_aside(head):
                continue
            if self.batch.awaits(head):
                self.queue.park(head)
                continue
            placement = self.batch.place(head, self.queue.needed_tokens)
            if placement is None:
                return
            origin = self.batch.memory.origin(placement)
            self.queue.admit(head)
            self.batch.admit(head, placement, draft)
            if head.cached is None:
                head.cached = placement.length
                if head.request.leader is None:
                    self._count(head, placement, *origin)

    def _count(self, sequence: Sequence, placement: Placement, host: int, disk: int) -> None:
        counts = self.counts
        counts.prompt_tokens += sequence.prompt_tokens
        counts.cached_tokens += placement.length
        counts.host_cached_tokens += host
        counts.disk_cached_tokens += disk

    def release_followers(self, flight: Flight) -> None:
        """Let those wait like anyone that waited for a prompt which is there now."""
        for sequence, _ in flight.prefilled:
            if sequence.published:
                self.queue.publish(sequence)

    # What comes of them.

    def tell_tokens(
        self, uids: Slots, ids: Ints, indices: Slots, told: list[m.TokenLogprobs], patient: bool
    ) -> None:
        """One new token for each uid: to the detokenizers, or to the beam search it belongs to."""
        if self.searches:
            told, outer = self.searches.answer(told), uids >= 0
            uids, ids, indices = uids[outer], ids[outer], indices[outer]
        if len(uids):
            self.counts.generated_tokens += len(uids)
            self.outbox.tokens(uids, ids, indices, told, patient)

    def tell_prompt(self, part: m.PromptLogprobs) -> None:
        """Log-probabilities of a part of a prompt."""
        uid = part.uid if part.uid >= 0 else self.searches.outer(part.uid)
        if uid is not None:
            self.outbox.score(msgspec.structs.replace(part, uid=uid))

    # Suspects.

    def _admit_suspect(self, draft: Draft) -> None:
        """Nobody runs beside a suspect."""
        if self.batch.holders or (placement := self.batch.place(suspect := self.suspects.first())) is None:
            return
        self.queue.remove(suspect)
        self.batch.admit(suspect, placement, draft)

    def clear(self, sequence: Sequence, tokens: int) -> None:
        """A suspect has so many tokens now; once that clears it, it lets the others run."""
        if self.suspects.cleared(sequence, tokens):
            self.batch.put_off(sequence)

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

    def _search(self, request: m.Request, beams: m.Beams, choices: Several[int], age: int) -> None:
        """Begin a search; choices that were lost join the one that goes on with the others."""
        self._watch(request, choices)
        search = next((found for uid in choices_of(request) if (found := self.searches.of(uid))), None)
        if search is None:
            prompt_tokens = len(request.prompt_ids) // 4
            room = self.limits.end_of(prompt_tokens, request.max_tokens) - prompt_tokens
            search = Search(request, beams, room, age)
            search.choices = sorted(choices)
            self.searches.begin(search)
            self._step(search)
            return
        self.searches.join(search, choices)
        if request.uid in choices and request.sampling.prompt_logprobs is not None:
            self.restart_search(search)

    def restart_search(self, search: Search) -> None:
        """Begin a search again, for those of its choices that live."""
        choices = list(search.choices)
        for uid in choices:
            self._forget(search, uid)
        assert search.request.beams is not None
        self._search(search.request, search.request.beams, choices, search.age)

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

    def reader(self, uid: int) -> int:
        """The detokenizer that its tokens go to."""
        return uid % self.limits.detokenizers

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
        self.suspects.forget(sequence)
        self.deadlines.remove(sequence.uid)
        self.queue.release(sequence)
        match sequence.state:
            case Waiting():
                self.queue.remove(sequence)
                sequence.state = Gone()
            case _:
                self.batch.dismiss(sequence)
