"""Slot state: what a sequence's row holds on the device, and what the host knows of it.

Lengths and block tables follow from the plans alone, so the host keeps its own copies and prepares step N+1
while the device still computes step N. The last token is known to the device only, when the next step needs
it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from stretto.roles import messages as m
from stretto.roles.executor.controls import kinds_of

NO_PAGE = NONE = -1
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "seed")
"""Columns of the device's state that an `Admit` fills."""


class HostSlots:
    """The host's mirror: lengths and block tables as they will be once every plan applied so far has run, and
    what each slot wants beside tokens. A block table has one entry of each group of layers for each index."""

    def __init__(
        self, slots: int, pages_per_slot: int, page_size: int, groups: int = 1, state: int = 0
    ) -> None:
        self.page_size, self.groups = page_size, groups
        self._state = state
        """Entries at the front of a block table: pages of a state of fixed size."""
        self.lengths = np.zeros(slots, np.int64)
        """Tokens whose keys and values the slot's pages hold."""
        self.kinds = np.zeros(slots, np.int32)
        """The slot's controls, as in `kernels.apply_controls.State`."""
        self.logprobs = np.full(slots, NONE, np.int32)
        """Alternatives to report beside each sampled token's log-probability; NONE: not even that."""
        self.prompt_logprobs = np.full(slots, NONE, np.int32)
        """The same for the tokens of scored chunks."""
        self._page_counts = np.zeros(slots, np.int64)
        self._table = np.full((slots, state + groups * pages_per_slot), NO_PAGE, np.int32)

    def admit(self, admits: Sequence[m.Admit]) -> np.ndarray:
        """Occupy slots afresh. Returns the table entries to write, int64 [n, 3]: (slot, index, page)."""
        written = [np.empty((0, 3), np.int64)]
        for admit in admits:
            pages = np.frombuffer(admit.pages, np.int32)
            self.lengths[admit.slot] = admit.length
            self._page_counts[admit.slot] = len(pages)
            self._want(admit.slot, admit.sampling)
            self._table[admit.slot] = NO_PAGE
            self._table[admit.slot, : len(pages)] = pages
            written.append(np.stack([np.full(len(pages), admit.slot), np.arange(len(pages)), pages], axis=1))
        return np.concatenate(written)

    def _want(self, slot: int, sampling: m.Sampling) -> None:
        self.kinds[slot] = kinds_of(sampling.controls)
        self.logprobs[slot] = NONE if sampling.logprobs is None else sampling.logprobs
        self.prompt_logprobs[slot] = NONE if sampling.prompt_logprobs is None else sampling.prompt_logprobs

    def grow(self, growth: np.ndarray) -> np.ndarray:
        """Append pages, int32 [n, 2]: (slot, page), in order. Returns the table entries as `admit` does."""
        if not len(growth):
            return np.empty((0, 3), np.int64)
        growth = growth[np.argsort(growth[:, 0], kind="stable")].astype(np.int64)
        slots, first, counts = np.unique(growth[:, 0], return_index=True, return_counts=True)
        rank = np.arange(len(growth)) - np.repeat(first, counts)
        index = self._page_counts[growth[:, 0]] + rank
        self._table[growth[:, 0], index] = growth[:, 1]
        self._page_counts[slots] += counts
        return np.stack([growth[:, 0], index, growth[:, 1]], axis=1)

    def advance(self, slots: np.ndarray, counts: np.ndarray | int) -> np.ndarray:
        """Lengthen distinct slots by `counts` tokens; returns their new lengths, int64 [n].

        Raises RuntimeError when a slot has no page for them, which is a bug of the scheduler's.
        """
        lengths: np.ndarray = self.lengths[slots] + counts
        room = (self._page_counts[slots] - self._state) // self.groups * self.page_size
        if (lengths > room).any():
            at = int((lengths - room).argmax())
            raise RuntimeError(f"slot {slots[at]} has no page for position {room[at]}")
        self.lengths[slots] = lengths
        return lengths

    def cells(self, slots: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Where in the pool the tokens at these positions live: page * page_size + offset, int64 [n],
        or [groups, n] where there are several groups of layers.

        Raises RuntimeError when the slot has no page there, which is a bug of the scheduler's.
        """
        index, offset = np.divmod(positions, self.page_size)
        if self.groups > 1:
            index = index * self.groups + np.arange(self.groups)[:, None]
        pages = self._table[slots, self._state + index].astype(np.int64)
        if pages.size and pages.min() < 0:
            at = int(pages.argmin()) % len(positions)
            raise RuntimeError(f"slot {slots[at]} has no page for position {positions[at]}")
        return pages * self.page_size + offset


class DeviceSlots:
    """The device's state, one row per slot; written only by work on the compute stream."""

    def __init__(
        self, slots: int, pages_per_slot: int, place: torch.device, groups: int = 1, state: int = 0
    ) -> None:
        def column(dtype: torch.dtype) -> torch.Tensor:
            return torch.zeros(slots, dtype=dtype, device=place)

        self.last_token = column(torch.int32)
        self.temperature = column(torch.float32)
        self.top_k = column(torch.int32)
        self.top_p = column(torch.float32)
        self.min_p = column(torch.float32)
        self.seed = column(torch.int64)
        self._groups, self._state = groups, state
        self.table = torch.zeros(slots, state + groups * pages_per_slot, dtype=torch.int32, device=place)

    def tables(self, slots: torch.Tensor, width: int) -> torch.Tensor:
        """The first `width` pages of these slots, int32 [n, width], or [groups, n, width]."""
        end = self._state + self._groups * width
        found = self.table[:, self._state : end].index_select(0, slots)
        if self._groups == 1:
            return found
        return found.view(len(slots), width, self._groups).permute(2, 0, 1).contiguous()

    def states(self, slots: torch.Tensor) -> torch.Tensor | None:
        """The pages of these slots' states, int32 [n, pages]; None where there are none."""
        return self.table[:, : self._state].index_select(0, slots) if self._state else None
