"""The scheduler without its process: requests in, plans out, results in, tokens out.

Sans-I/O and deterministic: no clock, no randomness, no transport. The executor runs plans in order; up to two
are in flight, so a plan is made before the tokens of the one before it are known:

* a decode row is planned for a token that is still on the device;
* a length limit is known ahead and never wastes a row; a stop id is learnt when one more row is in flight
  already, and that row's token is dropped: not shown, not counted, not cached;
* slots and pages go to others only when the last step that touches them has reported;
* the choices of one request share its prompt: they wait until the first, their leader, has computed it.

Steady decode is arithmetic on the columns of `table.Table`; Python touches only sequences that change state.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from stretto.roles import messages as m
from stretto.roles.scheduler import audit, scores
from stretto.roles.scheduler.batch import Batch
from stretto.roles.scheduler.deadlines import Deadlines
from stretto.roles.scheduler.limits import Limits
from stretto.roles.scheduler.outbox import Outbox
from stretto.roles.scheduler.pages import Ints
from stretto.roles.scheduler.policy import Queue
from stretto.roles.scheduler.sequence import Decode, Gone, Retiring, Running, Sequence, Waiting
from stretto.roles.scheduler.step import Draft, Flight
from stretto.roles.scheduler.table import Slots

MAX_DEATHS = 2
"""A request that was running at this many losses of the device is suspected of causing them, and fails."""


@dataclass(slots=True)
class Counts:
    """What happened since somebody looked. The choices of one request have one prompt."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    wasted_tokens: int = 0
    """Computed after a stop id that was learnt a step late."""
    retractions: int = 0

    def by_metric(self) -> list[tuple[str, int]]:
        """The counts that are not 0, under their names in `roles.metrics`."""
        named = ((f"{name}_total", getattr(self, name)) for name in self.__slots__)
        return [(name, count) for name, count in named if count]


class Core:
    """Schedules requests over the slots and KV pages of one executor.

    Call `next_plan` until it returns None, hand the plans over in order, and each result to `advance`; pass
    on what `take` returns. A `uid` that is submitted again while it lives is ignored: it is the same request,
    repeated, and its stream goes on. Every other submitted uid gets one `Open`, then its tokens, then one
    `End`, unless `stop` silences it.
    """

    def __init__(self, limits: Limits) -> None:
        self.counts = Counts()
        self._outbox = Outbox(limits.detokenizers)
        self._queue = Queue()
        self._deadlines = Deadlines()
        self._live: dict[int, Sequence] = {}
        """Every request that has not ended, by uid."""
        self._submitted = 0
        self._renew(limits)

    def _renew(self, limits: Limits) -> None:
        self.limits = limits
        self._batch = Batch(limits, put_back=self._put_back)
        self._cold = True

    # What a caller may ask.

    @property
    def busy(self) -> bool:
        """Whether any request lives or any step is in flight."""
        return bool(self._live or self._batch.flights)

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._queue)

    @property
    def running(self) -> int:
        """Requests that hold a slot."""
        return len(self._batch.holders)

    @property
    def pages(self) -> tuple[int, int, int]:
        """KV pages that are (free, cached, owned)."""
        pool = self._batch.memory.pool
        return pool.free, pool.cached, pool.owned

    # What a caller may do.

    def submit(self, requests: Iterable[m.Request]) -> None:
        """Queue requests; one that can never fit ends at once."""
        for request in requests:
            if request.uid not in self._live:
                self._submit(request)

    def abort(self, uids: Iterable[int]) -> None:
        """End requests wherever they are, with `End`; uids that do not live are ignored."""
        for uid in uids:
            if (sequence := self._live.get(uid)) is not None:
                self._end(sequence, m.End(uid, "abort", cached_tokens=sequence.cached or 0))
        self._settle()

    def expire(self, now: float) -> None:
        """Fail every request whose deadline has come, wherever it is."""
        for uid in self._deadlines.due(now):
            self._expire(self._live[uid])
        self._settle()

    @property
    def next_deadline(self) -> float | None:
        """When to call `expire`; None while nothing has a deadline."""
        return self._deadlines.next

    def stop(self, uids: Iterable[int]) -> None:
        """Like `abort`, but silent: whoever reads these streams has ended them already."""
        for uid in uids:
            if (sequence := self._live.get(uid)) is not None:
                self._leave(sequence)
        self._settle()

    def lose(self, detokenizer: int) -> None:
        """Stop every request whose tokens go to this detokenizer: it died, and the gateways know."""
        self.stop([uid for uid in self._live if uid % self.limits.detokenizers == detokenizer])

    def next_plan(self) -> m.Plan | None:
        """The next step, None when there is nothing to compute or enough is in flight."""
        if len(self._batch.flights) >= (2 if self.limits.overlap else 1):
            return None
        draft = self._batch.draft()
        self._admit(draft)
        if not draft:
            return None
        plan = draft.plan(self._cold)
        self._cold = False
        self._batch.launch(draft)
        return plan

    def advance(self, result: m.Result) -> None:
        """Digest the outcome of the oldest plan in flight."""
        flights, tokens = self._batch.flights, np.frombuffer(result.tokens, np.int32)
        if not flights or result.step != flights[0].number or len(tokens) != len(flights[0].sampling):
            raise RuntimeError(
                f"result of step {result.step}, {len(tokens)} tokens, answers none of {flights}"
            )
        flight = self._batch.land()
        self._score(flight, result.prompt_logprobs)
        self._accept(flight, tokens, result.logprobs)
        self._batch.free(flight)
        self._publish(flight)
        self._settle()

    def restart(self, pages: int) -> None:
        """Go on with an empty device of so many pages, which counts its steps from 1 again.

        Running sequences are queued again with what they have generated, so that their streams go on with
        the tokens they would have had. Those that were running at `MAX_DEATHS` losses end with an error,
        and so do those that no longer fit.
        """
        survivors = self._batch.abandon()
        for sequence in survivors:
            sequence.deaths += 1
        waiting = [*survivors, *self._queue]
        self._queue = Queue()
        self._renew(replace(self.limits, pages=pages))
        for sequence in waiting:
            sequence.published = False
        for sequence in waiting:
            self._enqueue(sequence)
        for sequence in waiting:
            self._recheck(sequence)
        self._settle()

    def take(self) -> list[tuple[int, m.Tokens]]:
        """(detokenizer, message) pairs since the last call, in the order in which they are to be sent."""
        return self._outbox.take()

    def check(self) -> None:
        """Verify every invariant; raises AssertionError that says which one is broken."""
        audit.check_states(self._live, self._queue, self._batch.holders)
        self._batch.check()

    # Requests come.

    def _submit(self, request: m.Request) -> None:
        tokens = np.frombuffer(request.prompt_ids, np.int32)
        self._outbox.open(m.Open(request.uid, len(tokens), request.output))
        fault = self.limits.refusal(len(tokens), request.max_tokens)
        if fault is not None:
            self._outbox.end(m.End(request.uid, "error", fault=fault))
            return
        limit = self.limits.end_of(len(tokens), request.max_tokens)
        sequence = Sequence(request, self._submitted, limit, Waiting(tokens))
        self._submitted += 1
        self._live[request.uid] = sequence
        if request.deadline is not None:
            self._deadlines.add(request.uid, request.deadline)
        self._enqueue(sequence)

    def _enqueue(self, sequence: Sequence) -> None:
        """Let a sequence wait for its turn, or for its leader's prompt."""
        uid = sequence.request.leader
        leader = None if uid is None else self._live.get(uid)
        if leader is None or leader.published:
            self._queue.add(sequence)
        else:
            leader.shares = sequence.shares = True
            self._queue.hold(sequence)

    def _recheck(self, sequence: Sequence) -> None:
        """After a restart: fail what killed the device twice, or no longer fits."""
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
            self._fail(sequence, fault)
        elif len(sequence.state.tokens) >= max(sequence.limit, sequence.prompt_tokens + 1):
            self._end(sequence, m.End(sequence.uid, "length", cached_tokens=sequence.cached or 0))

    def _admit(self, draft: Draft) -> None:
        """Start waiting sequences, in the queue's order, as far as budget, slots and pages go."""
        while draft.open and (head := self._queue.head()) is not None:
            placement = self._batch.place(head)
            if placement is None:
                return
            self._queue.remove(head)
            self._batch.admit(head, placement, draft)
            if head.cached is None:
                head.cached = placement.length
                if head.request.leader is None:
                    self.counts.prompt_tokens += head.prompt_tokens
                    self.counts.cached_tokens += placement.length

    def _put_back(self, sequence: Sequence) -> None:
        self.counts.retractions += 1
        self._enqueue(sequence)

    # A result came.

    def _score(self, flight: Flight, parts: list[m.ChunkLogprobs]) -> None:
        """Pass on log-probabilities of prompts."""
        if {part.chunk for part in parts} != flight.scored.keys():
            raise RuntimeError(f"step {flight.number}: {parts} do not belong to chunks {list(flight.scored)}")
        for part in parts:
            sequence, first = flight.scored[part.chunk]
            if not self._lives(sequence):
                continue
            if np.isnan(np.frombuffer(part.logprobs, np.float32)).any():
                self._fail_output(sequence)
            elif (news := scores.of_prompt(sequence.uid, sequence.scored, first, part)) is not None:
                sequence.scored += len(news.logprobs) // 4
                self._outbox.score(news)

    def _accept(self, flight: Flight, tokens: Ints, logprobs: list[m.RowLogprobs]) -> None:
        """Append each token to its sequence; end those that are complete."""
        self._announce(flight)
        slots, table, holders = flight.sampling, self._batch.table, self._batch.holders
        wanted = table.live[slots]
        if not wanted.all():
            slots, tokens = slots[wanted], tokens[wanted]
        if len(tokens) and tokens.min() < 0:
            slots, tokens = self._fail_rows(slots, tokens)
        if not len(tokens):
            return
        self.counts.generated_tokens += len(tokens)
        wanted_scores = scores.of_tokens(logprobs, flight.sampling, slots, table.uid) if logprobs else []
        self._outbox.tokens(table.uid[slots], tokens, table.append_tokens(slots, tokens), wanted_scores)
        stopped = table.stopped(slots, tokens)
        ended = stopped | (table.known[slots] >= table.limit[slots])
        for row in np.flatnonzero(ended).tolist():
            self._finish(holders[int(slots[row])], int(tokens[row]) if stopped[row] else None)

    def _announce(self, flight: Flight) -> None:
        """Tell what first tokens come now; end what was to have none."""
        for sequence, goal in flight.prefilled:
            if goal == sequence.prompt_tokens and self._lives(sequence):
                if goal == sequence.limit:
                    self._finish(sequence, None)
                else:
                    self._outbox.hit(sequence.uid, sequence.cached or 0)

    def _publish(self, flight: Flight) -> None:
        """Let those go that waited for a prompt which is there now."""
        for sequence, _ in flight.prefilled:
            if sequence.published:
                self._queue.release(sequence.uid)

    def _fail_rows(self, slots: Slots, tokens: Ints) -> tuple[Slots, Ints]:
        """End sequences whose logits were not numbers; returns the other rows."""
        bad: npt.NDArray[np.bool_] = tokens < 0
        for slot in slots[bad].tolist():
            self._fail_output(self._batch.holders[slot])
        return slots[~bad], tokens[~bad]

    def _fail_output(self, sequence: Sequence) -> None:
        assert isinstance(sequence.state, Running)
        self._batch.table.known[sequence.state.slot] = 0  # nobody may reuse KV that made this
        text = "The model's output was not a number (NaN) for this request, so it cannot go on."
        self._fail(sequence, m.Fault(500, text, type="server_error", code="nan_logits"))

    def _finish(self, sequence: Sequence, stop_id: int | None) -> None:
        cached = sequence.cached or 0
        if stop_id is None:
            self._end(sequence, m.End(sequence.uid, "length", cached_tokens=cached))
            return
        state = sequence.state
        assert isinstance(state, Decode | Retiring)
        self.counts.wasted_tokens += self._batch.computes_for(state.slot)
        silent = stop_id in sequence.request.silent_stop_ids
        self._end(sequence, m.End(sequence.uid, "stop", stop_id, silent, cached))

    # Sequences go.

    def _lives(self, sequence: Sequence) -> bool:
        return self._live.get(sequence.uid) is sequence

    def _expire(self, sequence: Sequence) -> None:
        request = sequence.request
        assert request.deadline is not None
        text = (
            f"The request did not end within its timeout of {request.deadline - request.arrived:g} seconds."
        )
        self._fail(sequence, m.Fault(408, text, type="timeout_error", code="timeout"))

    def _fail(self, sequence: Sequence, fault: m.Fault) -> None:
        self._end(sequence, m.End(sequence.uid, "error", cached_tokens=sequence.cached or 0, fault=fault))

    def _end(self, sequence: Sequence, end: m.End) -> None:
        self._outbox.end(end)
        self._leave(sequence)

    def _leave(self, sequence: Sequence) -> None:
        """The request no longer lives; its slot and pages are freed as soon as they can be."""
        del self._live[sequence.uid]
        self._deadlines.remove(sequence.uid)
        self._queue.release(sequence.uid)
        match sequence.state:
            case Waiting():
                self._queue.remove(sequence)
                sequence.state = Gone()
            case _:
                self._batch.dismiss(sequence)

    def _settle(self) -> None:
        """Notice that the device has run out of work."""
        if not self.busy:
            self._cold = True
            self._batch.table.narrow_stops()
