"""The state of running sequences as columns over the slots, so that steady decode is arithmetic on arrays.

A sequence's *length* counts the positions that planned steps fill, those in flight included; *known* counts
its tokens, prompt and output, that have come back. Memory of large columns is committed as it is touched.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stretto.roles.scheduler.limits import Limits, pages_for
from stretto.roles.scheduler.pages import NO_PAGE, Ints
from stretto.roles.scheduler.ratio import expected_tokens
from stretto.roles.scheduler.sequence import Sequence

Slots = npt.NDArray[np.int64]
_NO_TOKEN = -1
_STOPS = 4
"""Stop ids per slot the table starts with."""


class Table:
    """Columns over `max_seqs` slots."""

    def __init__(self, limits: Limits) -> None:
        slots, self._page_size, self._limits = limits.max_seqs, limits.page_size, limits
        self._windows, self._groups = limits.make_windows(), len(limits.windows)
        (
            self.uid,
            self.age,
            self.priority,
            self.prompt,
            self.limit,
            self.length,
            self.known,
            self.last_step,
        ) = np.zeros((8, slots), np.int64)
        self.live = np.zeros(slots, bool)
        """Tokens that come back for the slot are wanted."""
        self.decoding = np.zeros(slots, bool)
        self.patient = np.zeros(slots, bool)
        """See `messages.Output.patient`."""
        self.history = np.zeros((slots, limits.max_model_len), np.int32)
        """Token ids; the first `known` of a row mean something."""
        self.stops = np.full((slots, _STOPS), _NO_TOKEN, np.int32)
        width = pages_for(limits.max_model_len, limits.page_size) * self._groups
        self.blocks = np.zeros((slots, width), np.int32)
        """Pages in order of position, one of each group of layers; `count` of each mean something."""
        self.count = np.zeros(slots, np.int64)
        self.states = np.zeros((slots, limits.state_pages), np.int32)
        """Pages of a state of fixed size."""
        self.left = np.zeros((slots, self._groups), np.int64)
        """How many of the first pages of each group its window has left once all planned steps have run."""

    def occupy(self, slot: int, sequence: Sequence, tokens: Ints, length: int, pages: Ints) -> None:
        """Fill a row: `pages` hold the KV of the first `length` of `tokens`, and have room for the rest."""
        request = sequence.request
        self.uid[slot], self.age[slot] = request.uid, sequence.age
        self.priority[slot] = self._limits.priority_of(request)
        self.prompt[slot], self.limit[slot] = sequence.prompt_tokens, sequence.limit
        self.length[slot], self.known[slot] = length, len(tokens)
        self.history[slot, : len(tokens)] = tokens
        self.blocks[slot, : len(pages)] = pages
        self.count[slot] = len(pages) // self._groups
        self.left[slot] = 0
        self.live[slot], self.patient[slot] = True, request.output.patient
        self._set_stops(slot, request.stop_ids)

    def vacate(self, slot: int) -> None:
        """Empty a row."""
        self.live[slot] = False
        self.length[slot] = self.known[slot] = self.count[slot] = 0

    def by_rank(self) -> Slots:
        """Decoding slots, lowest priority value first, then oldest first."""
        slots = np.flatnonzero(self.decoding)
        return slots[np.lexsort((self.age[slots], self.priority[slots]))]

    def due(self, slots: Slots) -> Slots:
        """Those of the decoding `slots` whose limit the steps in flight do not reach yet."""
        return slots[self.length[slots] + 1 < self.limit[slots]]

    def full(self, slots: Slots) -> Slots:
        """Those of `slots` with no page for their next position."""
        return slots[self.length[slots] >= self.count[slots] * self._page_size]

    def outputs(self) -> tuple[int, int]:
        """Tokens that wanted rows have generated, and that they may generate."""
        prompt = self.prompt[self.live]
        return int((self.known[self.live] - prompt).sum()), int((self.limit[self.live] - prompt).sum())

    def growth(self, ratio: float) -> int:
        """Pages that wanted rows lack yet, where each needs `ratio` of what its limit leaves it."""
        slots = np.flatnonzero(self.live)
        reached = np.maximum(self.length[slots], self.known[slots])
        goal = reached + expected_tokens(self.limit[slots] - reached, ratio)
        blocks = -(-goal // self._page_size)
        if self._windows is not None:
            has = np.maximum(self.count[slots], -(-reached // self._page_size))  # those to come are put by
            return self._windows.lacking(has, blocks)
        return int(np.maximum(blocks - self.count[slots], 0).sum())

    def append_pages(self, slots: Slots, pages: Ints) -> None:
        """One more page of each group of layers for each slot."""
        table = self.blocks.reshape(len(self.blocks), -1, self._groups)
        table[slots, self.count[slots]] = pages.reshape(-1, self._groups)
        self.count[slots] += 1

    def extend(self, slot: int, pages: Ints) -> None:
        """More pages for one slot."""
        first = self.count[slot] * self._groups
        self.blocks[slot, first : first + len(pages)] = pages
        self.count[slot] += len(pages) // self._groups

    def leave(self, slot: int, first: Slots, end: Slots, shared: int) -> tuple[Ints, int]:
        """Give up the pages numbered [first, end) of each group; returns them, and how many of them come
        after the first `shared` entries.
        """
        found: list[Ints] = []
        own = 0
        for group in range(self._groups):
            entries = np.arange(first[group], end[group]) * self._groups + group
            entries = entries[self.blocks[slot, entries] >= 0]
            found.append(self.blocks[slot, entries])
            own += int(np.count_nonzero(entries >= shared))
            self.blocks[slot, entries] = NO_PAGE
        return np.concatenate(found), own

    def append_tokens(self, slots: Slots, tokens: Ints) -> Slots:
        """One more token for each slot; returns how many tokens each had generated before."""
        known = self.known[slots]
        self.history[slots, known] = tokens
        self.known[slots] = known + 1
        return known - self.prompt[slots]

    def stopped(self, slots: Slots, tokens: Ints) -> npt.NDArray[np.bool_]:
        """Where the token is one of its slot's stop ids."""
        return (self.stops[slots] == tokens[:, None]).any(axis=1)

    def pages_of(self, slot: int) -> Ints:
        """The slot's block table."""
        return self.blocks[slot, : self.count[slot] * self._groups]

    def tokens_of(self, slot: int) -> Ints:
        """Prompt and output, as far as they are known."""
        return self.history[slot, : self.known[slot]]

    def kept_of(self, slot: int) -> Ints:
        """Tokens whose KV the pages hold once every planned step has run; never a dropped token."""
        return self.history[slot, : min(self.length[slot], self.known[slot])]

    def narrow_stops(self) -> None:
        """Undo the widening by requests with many stop ids; no slot may be occupied."""
        if self.stops.shape[1] > _STOPS:
            self.stops = np.full((len(self.stops), _STOPS), _NO_TOKEN, np.int32)

    def _set_stops(self, slot: int, ids: tuple[int, ...]) -> None:
        missing = len(ids) - self.stops.shape[1]
        if missing > 0:
            self.stops = np.pad(self.stops, ((0, 0), (0, missing)), constant_values=_NO_TOKEN)
        self.stops[slot] = _NO_TOKEN
        self.stops[slot, : len(ids)] = ids
