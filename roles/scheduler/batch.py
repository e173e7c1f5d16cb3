"""The running batch: sequences that hold a slot, the steps in flight that touch them, and how they leave."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from stretto.roles.scheduler import audit
from stretto.roles.scheduler.limits import Limits, pages_for
from stretto.roles.scheduler.memory import Memory, Placement
from stretto.roles.scheduler.pages import Ints
from stretto.roles.scheduler.ratio import NewTokenRatio, expected_tokens
from stretto.roles.scheduler.sequence import Decode, Gone, Prefill, Retiring, Sequence, Waiting
from stretto.roles.scheduler.step import Draft, Flight, Left
from stretto.roles.scheduler.table import Slots, Table
from stretto.roles.scheduler.windows import Windows


class Batch:
    """Plans steps for its sequences and frees what they held once the last step that touches it has landed.

    `put_back` gets each retracted sequence, in state Waiting, when it has left. `memory`, `table` and
    `holders` may be read.
    """

    def __init__(self, limits: Limits, put_back: Callable[[Sequence], None]) -> None:
        self.memory = Memory(limits)
        self.table = Table(limits)
        self.flights: deque[Flight] = deque()
        """Steps in flight, oldest first."""
        self.ratio = NewTokenRatio()
        self.landed = 0
        """Number of the last step that reported."""
        self.holders: dict[int, Sequence] = {}
        """By slot: sequences in Prefill, Decode or Retiring."""
        self._limits, self._put_back = limits, put_back
        self._windows, self._groups = limits.make_windows(), len(limits.windows)
        self._free_slots = list(range(limits.max_seqs - 1, -1, -1))
        self._prefills: dict[int, Sequence] = {}
        """By slot, in order of admission."""
        self._decodes: Slots | None = None
        """Cache of `Table.by_rank`; None when it is out of date."""
        self._retiring: dict[int, list[Sequence]] = {}
        """By the step whose report they wait for."""

    # Steps.

    def draft(self) -> Draft:
        """The next step, with a token for each decoding sequence and chunks of the prompts under way."""
        self.ratio.sink()
        draft = Draft(self.landed + len(self.flights) + 1, self._limits.max_batched_tokens)
        self._plan_decodes(draft)
        for sequence in list(self._prefills.values()):
            if draft.budget:
                self._plan_chunk(sequence, draft)
        return draft

    def launch(self, draft: Draft) -> None:
        """The step is on its way to the device."""
        self.flights.append(draft.flight())

    def land(self) -> Flight:
        """The oldest step in flight has reported. Hand it to `free` when its tokens are in the table."""
        flight = self.flights.popleft()
        self.landed = flight.number
        return flight

    def free(self, flight: Flight) -> None:
        """Share what the step computed, let go of what waited for it."""
        for source in flight.held:
            self.memory.release(source)
        for sequence, goal in flight.prefilled:
            self._publish(sequence, goal)
        for left in flight.left:
            self._leave(left)
        for sequence in self._retiring.pop(flight.number, ()):
            self._release(sequence)

    # Sequences come.

    def place(self, sequence: Sequence, others: int = 0) -> Placement | None:
        """Where a waiting sequence could start now, with room left for so many tokens of `others`; changes
        nothing.
        """
        assert isinstance(sequence.state, Waiting)
        if not self._free_slots:
            return None
        tokens = sequence.state.tokens
        reusable = self._reusable(sequence, len(tokens))
        spare = self._spare(sequence, len(tokens), others) + self._limits.state_pages
        return self.memory.place(tokens, reusable, spare, sequence.chain)

    def _spare(self, sequence: Sequence, tokens: int, others: int) -> int:
        """Pages that running sequences are expected to need, this one among them; whoever is alone may have
        them all."""
        if not self.holders:
            return 0
        ratio, size = self.ratio.value, self._limits.page_size
        goal = tokens + int(expected_tokens(np.array(sequence.limit - tokens), ratio))
        has, wants = pages_for(tokens, size), pages_for(goal + others, size)
        if self._windows is not None:
            lacking = self._windows.lacking(np.array(has), np.array(wants))
            return self.table.growth(ratio) + lacking + self._owed()
        return self.table.growth(ratio) + wants - has

    def known(self, sequence: Sequence) -> int:
        """Tokens of a waiting sequence that the prefix tree has."""
        assert isinstance(sequence.state, Waiting)
        tokens = sequence.state.tokens[: self._reusable(sequence, len(sequence.state.tokens))]
        return self.memory.tree.match(tokens, sequence.request.cache_salt).length

    @property
    def full(self) -> bool:
        """Whether there is no slot for another sequence."""
        return not self._free_slots

    def prefetch(self, sequence: Sequence) -> None:
        """Begin to bring what a waiting sequence can use from the disk."""
        if self.memory.tiers.enabled:
            assert isinstance(sequence.state, Waiting)
            tokens = sequence.state.tokens
            self.memory.prefetch(tokens, self._reusable(sequence, len(tokens)), sequence.chain)

    def awaits(self, sequence: Sequence) -> bool:
        """Whether what a waiting sequence needs next is on its way from the disk."""
        if not self.memory.tiers.busy:
            return False
        assert isinstance(sequence.state, Waiting)
        tokens = sequence.state.tokens
        return self.memory.awaits(tokens, self._reusable(sequence, len(tokens)), sequence.chain)

    def admit(self, sequence: Sequence, placement: Placement, draft: Draft) -> None:
        """Give a waiting sequence a slot, and the draft the first chunk of its prompt."""
        assert isinstance(sequence.state, Waiting)
        tokens, slot = sequence.state.tokens, self._free_slots.pop()
        pages = self.memory.occupy(placement)
        sequence.state = Prefill(slot, placement.node, len(tokens))
        if self._windows is not None:
            first = len(placement.shared) + len(placement.source)
            sequence.state.shared, sequence.state.stash = len(placement.shared), pages[first:]
            pages = pages[:first]
        self.table.occupy(slot, sequence, tokens, placement.length, pages)
        self.holders[slot] = self._prefills[slot] = sequence
        draft.admit(slot, sequence, tokens, placement, pages, self._take_state(slot))
        self._plan_chunk(sequence, draft)

    def _take_state(self, slot: int) -> Ints:
        """Pages for what a sequence carries along, where the model has such a thing."""
        if self._limits.state_pages:
            self.table.states[slot] = self.memory.take(self._limits.state_pages)
        return self.table.states[slot]

    # Sequences run.

    def _plan_decodes(self, draft: Draft) -> None:
        slots, full = self._due(draft.budget)
        while len(full) * self._groups > self.memory.available and self._retract():
            slots, full = self._due(draft.budget)
        if len(full):
            served, stalled = np.split(full, [self.memory.available // self._groups])
            slots = slots[~np.isin(slots, stalled)]
            self._grow(served, draft)
        if len(slots):
            draft.decode(slots)
            self.table.length[slots] += 1
            self.table.last_step[slots] = draft.number
            if self._windows is not None:
                self._slide(self._windows, slots, draft)

    def _due(self, budget: int) -> tuple[Slots, Slots]:
        """Slots to decode, in order of rank, and those among them that need a page."""
        if self._decodes is None:
            self._decodes = self.table.by_rank()
        slots = self.table.due(self._decodes)[:budget]
        return slots, self.table.full(slots)

    def _grow(self, slots: Slots, draft: Draft) -> None:
        if len(slots):
            pages = self.memory.take(len(slots) * self._groups)
            self.table.append_pages(slots, pages)
            draft.grow(slots if self._groups == 1 else slots.repeat(self._groups), pages)

    # Where layers have windows, a prompt gets its pages chunk by chunk, from those that were put by when it
    # was admitted. For those that its windows leave it gets others, so that there are enough; but for those
    # that someone else uses by then it has to wait. Whoever came last waits for nobody.

    def _extend(self, state: Prefill, end: int, draft: Draft) -> int:
        """Pages for the tokens up to `end`, or for as many as can be had; returns how many."""
        self._top_up(state)
        size, count = self._limits.page_size, int(self.table.count[state.slot])
        end = min(end, (count + len(state.stash) // self._groups) * size)
        pages, state.stash = np.split(state.stash, [(pages_for(end, size) - count) * self._groups])
        self.table.extend(state.slot, pages)
        draft.grow(np.full(len(pages), state.slot), pages)
        return end

    def _slide(self, windows: Windows, slots: Slots, draft: Draft) -> None:
        """Let go, after this step, of the pages that no later one looks at."""
        lengths, first = self.table.length[slots], self.table.left[slots]
        end = windows.kept_from(lengths)
        for row in np.flatnonzero((end > first).any(axis=1)).tolist():
            slot = int(slots[row])
            draft.leave(Left(self.holders[slot], first[row], end[row], int(lengths[row])))
            self.table.left[slot] = end[row]

    def _leave(self, left: Left) -> None:
        """The step has run: its pages stay in the prefix tree as long as there is room, or are free."""
        sequence, state = left.sequence, left.sequence.state
        if not isinstance(state, Prefill | Decode):
            return  # all its pages are about to go
        if not sequence.published:
            self._share(sequence, state, left.length)
        shared = state.shared if isinstance(state, Prefill) else 0
        pages, own = self.table.leave(state.slot, left.first, left.end, shared)
        self.memory.release(pages)
        if isinstance(state, Prefill):
            state.owed += own
            self._top_up(state)

    def _top_up(self, state: Prefill) -> None:
        missing = pages_for(state.goal, self._limits.page_size) - int(self.table.count[state.slot])
        state.owed = max(0, min(state.owed, missing * self._groups - len(state.stash)))
        if count := min(state.owed, self.memory.available):
            state.stash = np.concatenate([state.stash, self.memory.take(count)])
            state.owed -= count

    def _owed(self) -> int:
        """Pages that prompts under way wait for."""
        states = (sequence.state for sequence in self._prefills.values())
        return sum(state.owed for state in states if isinstance(state, Prefill))

    def _drop_stash(self, state: Prefill) -> None:
        if len(state.stash):
            self.memory.release(state.stash)
            state.stash = state.stash[:0]

    def _plan_chunk(self, sequence: Sequence, draft: Draft) -> None:
        state, table = sequence.state, self.table
        assert isinstance(state, Prefill)
        start = int(table.length[state.slot])
        end = min(start + draft.budget, state.goal)
        if self._windows is not None:
            end = self._extend(state, min(end, start + self._windows.chunk), draft)
            if end <= start:
                return
        draft.chunk(state.slot, table.history[state.slot, start:end])
        if sequence.unscored and start + 1 < sequence.prompt_tokens:
            label = int(table.history[state.slot, end]) if end < sequence.prompt_tokens else -1
            draft.score_chunk(sequence, start + 1, label)
        table.length[state.slot] = end
        table.last_step[state.slot] = draft.number
        if self._windows is not None:
            self._slide(self._windows, np.array([state.slot]), draft)
        if end == state.goal:
            self._drop_stash(state)
            draft.last_chunk(sequence, end, samples=end < sequence.limit)
            sequence.state = Decode(state.slot, state.node)
            del self._prefills[state.slot]
            self._set_decoding(state.slot, True)

    def _set_decoding(self, slot: int, decoding: bool) -> None:
        self.table.decoding[slot] = decoding
        self._decodes = None

    def _publish(self, sequence: Sequence, goal: int) -> None:
        """Make a prompt that is computed now available to others."""
        state = sequence.state
        if not isinstance(state, Decode):
            return
        sequence.published = True
        self._share(sequence, state, goal)

    def _share(self, sequence: Sequence, state: Prefill | Decode, length: int) -> None:
        """Make its first tokens known, which have been computed."""
        if self._reuses(sequence):
            tokens, pages = self.table.history[state.slot, :length], self.table.pages_of(state.slot)
            state.node = self.memory.repin(state.node, tokens, pages, sequence.chain)

    def _reusable(self, sequence: Sequence, tokens: int) -> int:
        return sequence.reusable(tokens) if self._reuses(sequence) else 0

    def _reuses(self, sequence: Sequence) -> bool:
        """Whether the sequence takes from the prefix tree and gives to it."""
        return (self._limits.prefix_cache or sequence.shares) and not self._limits.state_pages

    # Sequences go.

    def computes_for(self, slot: int) -> bool:
        """Whether a step in flight touches the slot."""
        return bool(self.table.last_step[slot] > self.landed)

    def dismiss(self, sequence: Sequence) -> None:
        """Take a sequence out for good; what it has in flight is computed for nothing."""
        state = sequence.state
        assert isinstance(state, Prefill | Decode | Retiring)
        if isinstance(state, Retiring):
            state.retracted = False
            self.table.live[state.slot] = False
        else:
            self._retire(sequence, state, retracted=False)

    def put_off(self, sequence: Sequence) -> None:
        """Take a sequence out of planning; it is put back when its last step has landed."""
        state = sequence.state
        if isinstance(state, Prefill | Decode):
            self._retire(sequence, state, retracted=True)

    def tokens_of(self, sequence: Sequence) -> Ints:
        """Prompt and output of a sequence that lives, as far as they are known; a copy."""
        state = sequence.state
        if isinstance(state, Waiting):
            return state.tokens
        assert isinstance(state, Prefill | Decode | Retiring)
        return self.table.tokens_of(state.slot).copy()

    def _retract(self) -> bool:
        """Take a sequence out of planning; False when pages come back without that."""
        if self._retiring or any(flight.held or flight.left for flight in self.flights):
            return False
        victim = min(self.holders.values(), key=self._loss)
        if len(self.holders) == 1:
            raise AssertionError(f"request {victim.uid} runs alone and lacks a page")
        self.ratio.jump(*self.table.outputs(), len(self.holders))
        victim.retractions += 1
        self.put_off(victim)
        return True

    def _loss(self, sequence: Sequence) -> tuple[int, int, int, int]:
        """What a retraction costs, for comparison: who has suffered it least, then who has least computed
        that no other sequence holds, then who is youngest; the lowest priority before all that.

        Nothing starves of it: each retraction is followed by a token for somebody, and tokens are kept.
        """
        state, table = sequence.state, self.table
        assert isinstance(state, Prefill | Decode)
        computed = table.pages_of(state.slot)[
            : pages_for(int(table.length[state.slot]), self._limits.page_size) * self._groups
        ]
        lost = self.memory.pool.alone(computed)
        return -int(table.priority[state.slot]), sequence.retractions, lost, -sequence.age

    def _retire(self, sequence: Sequence, state: Prefill | Decode, retracted: bool) -> None:
        """Plan nothing more for a sequence; release it when its last step has landed."""
        self._prefills.pop(state.slot, None)
        if isinstance(state, Prefill):
            self._drop_stash(state)
        self._set_decoding(state.slot, False)
        self.table.live[state.slot] = retracted
        sequence.state = Retiring(state.slot, state.node, retracted)
        if self.computes_for(state.slot):
            last = int(self.table.last_step[state.slot])
            self._retiring.setdefault(last, []).append(sequence)
        else:
            self._release(sequence)

    def _release(self, sequence: Sequence) -> None:
        """Give up slot and pages; what was computed stays in the prefix tree as long as there is room."""
        state, table = sequence.state, self.table
        assert isinstance(state, Retiring)
        pages = table.pages_of(state.slot)
        self.memory.tree.unpin(state.node)
        if self._windows is not None and not table.known[state.slot] and not sequence.published:
            self.memory.tree.uproot(state.node)  # the chunks of a prompt that led to no number
        if self._reuses(sequence):
            self.memory.keep(table.kept_of(state.slot), pages, sequence.chain, state.retracted)
        self.memory.release(pages)
        if self._limits.state_pages:
            self.memory.release(table.states[state.slot])
        sequence.state = Waiting(table.tokens_of(state.slot).copy()) if state.retracted else Gone()
        table.vacate(state.slot)
        del self.holders[state.slot]
        self._free_slots.append(state.slot)
        if state.retracted:
            self._put_back(sequence)

    def abandon(self) -> list[Sequence]:
        """The device is lost. Returns the sequences that were to go on, as Waiting, oldest first.

        The batch is of no use afterwards.
        """
        survivors = []
        for sequence in sorted(self.holders.values(), key=lambda sequence: sequence.age):
            state = sequence.state
            assert isinstance(state, Prefill | Decode | Retiring)
            if self.table.live[state.slot]:
                sequence.state = Waiting(self.table.tokens_of(state.slot).copy())
                survivors.append(sequence)
        return survivors

    def check(self) -> None:
        """Verify the batch's invariants; raises AssertionError."""
        audit.check_slots(self.table, self.holders, self._free_slots, self._prefills)
        audit.check_retiring(self._retiring, self.table, self.holders, self.flights)
        audit.check_writers(self.table, self.holders, self._limits)
        audit.check_memory(self.memory, self.table, self.holders, self.flights)
