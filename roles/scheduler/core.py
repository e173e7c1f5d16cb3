"""The scheduler without its process: requests in, plans out, results in, tokens out.

Sans-I/O and deterministic: no clock, no randomness, no transport. The executor runs plans in order; up to two
are in flight, so a plan is made before the tokens of the one before it are known:

* a decode row is planned for a token that is still on the device;
* a length limit is known ahead and never wastes a row; a stop id is learnt when one more row is in flight
  already, and that row's token is dropped: not shown, not counted, not cached;
* slots and pages go to others only when the last step that touches them has reported.

Steady decode is arithmetic on the columns of `table.Table`; Python touches only sequences that change state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from stretto.roles import messages as m
from stretto.roles.scheduler import audit
from stretto.roles.scheduler.limits import Limits
from stretto.roles.scheduler.memory import Memory, Placement
from stretto.roles.scheduler.outbox import Outbox
from stretto.roles.scheduler.pages import Ints
from stretto.roles.scheduler.policy import FirstCome
from stretto.roles.scheduler.sequence import Decode, Gone, Prefill, Retiring, Sequence, Waiting
from stretto.roles.scheduler.step import Draft, Flight
from stretto.roles.scheduler.table import Slots, Table

MAX_DEATHS = 2
"""A request that was running at this many losses of the device is suspected of causing them, and fails."""


@dataclass(slots=True)
class Counts:
    """What happened since somebody looked."""

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
        self._queue = FirstCome()
        self._live: dict[int, Sequence] = {}
        """Every request that has not ended, by uid."""
        self._submitted = 0
        self._renew(limits)

    def _renew(self, limits: Limits) -> None:
        self.limits = limits
        self._memory = Memory(limits)
        self._table = Table(limits)
        self._depth = 2 if limits.overlap else 1
        self._flights: deque[Flight] = deque()
        self._reported = 0
        self._cold = True
        self._free_slots = list(range(limits.max_seqs - 1, -1, -1))
        self._holders: dict[int, Sequence] = {}
        """By slot: sequences in Prefill, Decode or Retiring."""
        self._prefills: dict[int, Sequence] = {}
        """By slot, in order of admission."""
        self._decodes: Slots | None = None
        """Cache of `Table.by_age`; None when it is out of date."""
        self._retiring: dict[int, list[Sequence]] = {}
        """By the step whose report they wait for."""

    # What a caller may ask.

    @property
    def busy(self) -> bool:
        """Whether any request lives or any step is in flight."""
        return bool(self._live or self._flights)

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._queue)

    @property
    def running(self) -> int:
        """Requests that hold a slot."""
        return len(self._holders)

    @property
    def pages(self) -> tuple[int, int, int]:
        """KV pages that are (free, cached, owned)."""
        pool = self._memory.pool
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
        if len(self._flights) >= self._depth:
            return None
        draft = Draft(self._reported + len(self._flights) + 1, self.limits.max_batched_tokens)
        self._plan_decodes(draft)
        self._plan_prompts(draft)
        if not draft:
            return None
        plan = draft.plan(self._cold)
        self._cold = False
        self._flights.append(draft.flight())
        return plan

    def advance(self, result: m.Result) -> None:
        """Digest the outcome of the oldest plan in flight."""
        flight = self._flights[0] if self._flights else None
        tokens = np.frombuffer(result.tokens, np.int32)
        if flight is None or result.step != flight.number or len(tokens) != len(flight.sampling):
            raise RuntimeError(f"result of step {result.step} with {len(tokens)} tokens answers {flight}")
        self._flights.popleft()
        self._reported = flight.number
        self._accept(flight.sampling, tokens)
        for source in flight.held:
            self._memory.release(source)
        for sequence, goal in flight.prefilled:
            self._publish(sequence, goal)
        for sequence in self._retiring.pop(flight.number, ()):
            self._release(sequence)
        self._settle()

    def restart(self, pages: int) -> None:
        """Go on with an empty device of so many pages, which counts its steps from 1 again.

        Running sequences are queued again with what they have generated, so that their streams go on with
        the tokens they would have had. Those that were running at `MAX_DEATHS` losses end with an error,
        and so do those that no longer fit.
        """
        lost = sorted(self._holders.values(), key=lambda sequence: -sequence.age)
        table = self._table
        for sequence in lost:
            if (
                isinstance(state := sequence.state, Prefill | Decode | Retiring)
                and sequence.uid in self._live
            ):
                sequence.state = Waiting(table.tokens_of(state.slot).copy())
                sequence.deaths += 1
                self._queue.put_back(sequence)
        self._renew(replace(self.limits, pages=pages))
        for sequence in list(self._queue):
            self._recheck(sequence)

    def take(self) -> list[tuple[int, m.Tokens]]:
        """(detokenizer, message) pairs since the last call, in the order in which they are to be sent."""
        return self._outbox.take()

    def check(self) -> None:
        """Verify every invariant; raises AssertionError that says which one is broken."""
        audit.check_states(self._live, self._queue, self._holders, self._prefills)
        audit.check_slots(self._table, self._holders, self._free_slots)
        audit.check_retiring(self._retiring, self._table, self._holders, self._flights)
        audit.check_writers(self._table, self._holders, self.limits.page_size)
        audit.check_memory(self._memory, self._table, self._holders, self._flights)

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
        self._queue.add(sequence)

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
        elif len(sequence.state.tokens) >= sequence.limit:
            self._end(sequence, m.End(sequence.uid, "length", cached_tokens=sequence.cached or 0))

    # A step is planned.

    def _plan_decodes(self, draft: Draft) -> None:
        slots, full = self._due(draft.budget)
        while len(full) > self._memory.available and self._retract():
            slots, full = self._due(draft.budget)
        if len(full):
            served, stalled = np.split(full, [self._memory.available])
            slots = slots[~np.isin(slots, stalled)]
            if len(served):
                pages = self._memory.take(len(served))
                self._table.append_pages(served, pages)
                draft.grow(served, pages)
        if len(slots):
            draft.decode(slots)
            self._table.length[slots] += 1
            self._table.last_step[slots] = draft.number

    def _due(self, budget: int) -> tuple[Slots, Slots]:
        """Slots to decode, oldest first, and those among them that need a page."""
        if self._decodes is None:
            self._decodes = self._table.by_age()
        slots = self._table.due(self._decodes)[:budget]
        return slots, self._table.full(slots)

    def _retract(self) -> bool:
        """Take the youngest sequence out of planning; False when pages come back without that."""
        if self._retiring or any(flight.held for flight in self._flights):
            return False
        youngest = max(self._holders.values(), key=lambda sequence: sequence.age)
        if len(self._holders) == 1:
            raise AssertionError(f"request {youngest.uid} runs alone and lacks a page: {self.pages}")
        self.counts.retractions += 1
        self._retire(youngest, retracted=True)
        return True

    def _plan_prompts(self, draft: Draft) -> None:
        for sequence in list(self._prefills.values()):
            if draft.budget:
                self._plan_chunk(sequence, draft)
        while draft.budget and self._free_slots and (head := self._queue.head()) is not None:
            assert isinstance(head.state, Waiting)
            # Each running sequence may soon need a page; admitting into those pages would end in retractions.
            placement = self._memory.place(head.state.tokens, spare=len(self._holders))
            if placement is None:
                return
            self._admit(head, head.state.tokens, placement, draft)
            self._plan_chunk(head, draft)

    def _admit(self, sequence: Sequence, tokens: Ints, placement: Placement, draft: Draft) -> None:
        self._queue.remove(sequence)
        slot = self._free_slots.pop()
        pages = self._memory.occupy(placement)
        self._table.occupy(slot, sequence, tokens, placement.length, pages)
        sequence.state = Prefill(slot, placement.node, len(tokens))
        self._holders[slot] = self._prefills[slot] = sequence
        draft.admit(slot, placement, pages, sequence.request.sampling)
        if sequence.cached is None:
            sequence.cached = placement.length
            self.counts.prompt_tokens += sequence.prompt_tokens
            self.counts.cached_tokens += placement.length

    def _plan_chunk(self, sequence: Sequence, draft: Draft) -> None:
        state, table = sequence.state, self._table
        assert isinstance(state, Prefill)
        start = int(table.length[state.slot])
        end = min(start + draft.budget, state.goal)
        draft.chunk(state.slot, table.history[state.slot, start:end])
        table.length[state.slot] = end
        table.last_step[state.slot] = draft.number
        if end == state.goal:
            draft.sample_chunk(sequence, end)
            sequence.state = Decode(state.slot, state.node)
            del self._prefills[state.slot]
            self._set_decoding(state.slot, True)

    def _set_decoding(self, slot: int, decoding: bool) -> None:
        self._table.decoding[slot] = decoding
        self._decodes = None

    # A result came.

    def _accept(self, slots: Slots, tokens: Ints) -> None:
        """Append each token to its sequence; end those that are complete."""
        table = self._table
        wanted = table.live[slots]
        if not wanted.all():
            slots, tokens = slots[wanted], tokens[wanted]
        if len(tokens) and tokens.min() < 0:
            slots, tokens = self._fail_rows(slots, tokens)
        if not len(tokens):
            return
        self.counts.generated_tokens += len(tokens)
        self._outbox.tokens(table.uid[slots], tokens, table.append_tokens(slots, tokens))
        stopped = table.stopped(slots, tokens)
        ended = stopped | (table.known[slots] >= table.limit[slots])
        for row in np.flatnonzero(ended).tolist():
            self._finish(self._holders[int(slots[row])], int(tokens[row]) if stopped[row] else None)

    def _fail_rows(self, slots: Slots, tokens: Ints) -> tuple[Slots, Ints]:
        """End sequences whose logits were not numbers; returns the other rows."""
        bad: npt.NDArray[np.bool_] = tokens < 0
        self._table.known[slots[bad]] = 0  # nobody may reuse KV that made this
        for slot in slots[bad].tolist():
            text = "The model's output was not a number (NaN) for this request, so it cannot go on."
            self._fail(self._holders[slot], m.Fault(500, text, type="server_error", code="nan_logits"))
        return slots[~bad], tokens[~bad]

    def _finish(self, sequence: Sequence, stop_id: int | None) -> None:
        cached = sequence.cached or 0
        if stop_id is None:
            self._end(sequence, m.End(sequence.uid, "length", cached_tokens=cached))
            return
        state = sequence.state
        assert isinstance(state, Decode | Retiring)
        self.counts.wasted_tokens += int(self._table.last_step[state.slot] > self._reported)
        silent = stop_id in sequence.request.silent_stop_ids
        self._end(sequence, m.End(sequence.uid, "stop", stop_id, silent, cached))

    def _publish(self, sequence: Sequence, goal: int) -> None:
        """Make a prompt that is computed now available to others."""
        state, table = sequence.state, self._table
        if isinstance(state, Decode):
            tokens, pages = table.history[state.slot, :goal], table.pages_of(state.slot)
            state.node = self._memory.repin(state.node, tokens, pages)

    # Sequences go.

    def _fail(self, sequence: Sequence, fault: m.Fault) -> None:
        self._end(sequence, m.End(sequence.uid, "error", cached_tokens=sequence.cached or 0, fault=fault))

    def _end(self, sequence: Sequence, end: m.End) -> None:
        self._outbox.end(end)
        self._leave(sequence)

    def _leave(self, sequence: Sequence) -> None:
        """The request no longer lives; its slot and pages are freed as soon as they can be."""
        del self._live[sequence.uid]
        match sequence.state:
            case Waiting():
                self._queue.remove(sequence)
                sequence.state = Gone()
            case Retiring(slot) as state:
                state.retracted = False
                self._table.live[slot] = False
            case Prefill() | Decode():
                self._retire(sequence, retracted=False)

    def _retire(self, sequence: Sequence, retracted: bool) -> None:
        """Plan nothing more for a running sequence; release it when its last step has reported."""
        state = sequence.state
        assert isinstance(state, Prefill | Decode)
        self._prefills.pop(state.slot, None)
        self._set_decoding(state.slot, False)
        self._table.live[state.slot] = retracted
        sequence.state = Retiring(state.slot, state.node, retracted)
        last = int(self._table.last_step[state.slot])
        if last > self._reported:
            self._retiring.setdefault(last, []).append(sequence)
        else:
            self._release(sequence)

    def _release(self, sequence: Sequence) -> None:
        """Give up slot and pages; what was computed stays in the prefix tree as long as there is room."""
        state, table = sequence.state, self._table
        assert isinstance(state, Retiring)
        pages = table.pages_of(state.slot)
        self._memory.keep(table.kept_of(state.slot), pages)
        self._memory.release(pages)
        self._memory.tree.unpin(state.node)
        del self._holders[state.slot]
        self._free_slots.append(state.slot)
        if state.retracted:
            sequence.state = Waiting(table.tokens_of(state.slot).copy())
            self._queue.put_back(sequence)
        else:
            sequence.state = Gone()
        table.vacate(state.slot)

    def _settle(self) -> None:
        """Notice that the device has run out of work."""
        if not self.busy:
            self._cold = True
            self._table.narrow_stops()
