"""A step while it is put together, and what to remember of it while it is in flight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stretto.roles import messages as m
from stretto.roles.scheduler.memory import Placement
from stretto.roles.scheduler.pages import Ints
from stretto.roles.scheduler.sequence import Sequence
from stretto.roles.scheduler.table import Slots

MAX_ADMIT_BYTES = 1 << 20
"""Block tables and histories that the admits of one plan may carry, one admit more or less: well under a
ring's largest record (4 MiB)."""

_NO_SLOTS = np.empty(0, np.int64)
_NO_PAGES = np.empty(0, np.int32)


@dataclass(slots=True)
class Flight:
    """A step whose result has not come yet."""

    number: int
    sampling: Slots
    """The slot of each token in the result, in order."""
    prefilled: list[tuple[Sequence, int]]
    """Sequences whose last chunk it computes, and their length after it."""
    held: list[Ints]
    """Sources of its page copies, one of each group of layers; a page may be copied more than once."""
    scored: dict[int, tuple[Sequence, int]]
    """By chunk: whose prompt's log-probabilities it brings, and of which token the first one is."""
    left: list[Left]


class Left(NamedTuple):
    """Pages that no step after this one looks at: of each group of layers those numbered [first, end)."""

    sequence: Sequence
    first: Slots
    end: Slots
    length: int
    """Of the sequence, once the step has run."""


class Draft:
    """Collects one step within a budget of tokens."""

    def __init__(self, number: int, budget: int) -> None:
        self.number, self.budget = number, budget
        self._admits: list[m.Admit] = []
        self._admit_bytes = 0
        self._copies: list[tuple[int, int]] = []
        self._held: list[Ints] = []
        self._growth = b""
        self._left: list[Left] = []
        self._chunks: list[tuple[int, int, int]] = []
        self._chunk_ids: list[Ints] = []
        self._decodes = _NO_SLOTS
        self._prefilled: list[tuple[Sequence, int]] = []
        self._labels: list[tuple[int, int]] = []
        self._scored: dict[int, tuple[Sequence, int]] = {}

    def __bool__(self) -> bool:
        """Whether there is anything to compute."""
        return bool(self._chunks) or self._decodes.size > 0

    @property
    def open(self) -> bool:
        """Whether there is room for another admission."""
        return self.budget > 0 and self._admit_bytes < MAX_ADMIT_BYTES

    def decode(self, slots: Slots) -> None:
        """One token for each slot."""
        self._decodes = slots
        self.budget -= len(slots)

    def grow(self, slots: Slots, pages: Ints) -> None:
        """One more page for each slot; a slot may be there more than once."""
        self._growth += np.column_stack([slots, pages]).astype(np.int32).tobytes()

    def leave(self, left: Left) -> None:
        """The windows of a sequence leave pages."""
        self._left.append(left)

    def admit(
        self,
        slot: int,
        sequence: Sequence,
        tokens: Ints,
        placement: Placement,
        pages: Ints,
        state: Ints = _NO_PAGES,
    ) -> None:
        """Occupy a slot for a sequence of these `tokens`, with the copy its placement asks for.

        pages: of its block table; state: of what it carries along.
        """
        sampling = sequence.request.sampling
        table = state.tobytes() + pages.tobytes()
        history = tokens.tobytes() if _looks_back(sampling.controls) else b""
        self._admits.append(m.Admit(slot, placement.length, table, sampling, sequence.prompt_tokens, history))
        self._admit_bytes += len(history) + len(table)
        if len(placement.source):
            targets = pages[len(placement.shared) :].tolist()
            self._copies += zip(placement.source.tolist(), targets, strict=False)
            self._held.append(placement.source)

    def chunk(self, slot: int, ids: Ints) -> None:
        """Part of a prompt, at most `budget` tokens."""
        self._chunks.append((slot, len(ids), 0))
        self._chunk_ids.append(ids)
        self.budget -= len(ids)

    def score_chunk(self, sequence: Sequence, first: int, label: int) -> None:
        """The chunk just added brings log-probabilities of its prompt from the token at `first` on.

        `label` is the prompt's token after the chunk, -1 where there is none.
        """
        chunk = len(self._chunks) - 1
        self._labels.append((chunk, label))
        self._scored[chunk] = sequence, first

    def last_chunk(self, sequence: Sequence, goal: int, samples: bool) -> None:
        """The chunk just added is its prompt's last; the sequence has `goal` tokens with it."""
        slot, count, _ = self._chunks[-1]
        self._chunks[-1] = (slot, count, int(samples))
        self._prefilled.append((sequence, goal))

    def plan(self, cold: bool, after: int = 0) -> m.Plan:
        """The message to the executor; `after` is the last move that the step depends on."""
        return m.Plan(
            self.number,
            self._admits,
            np.array(self._copies, np.int32).tobytes(),
            self._growth,
            np.array(self._chunks, np.int32).tobytes(),
            np.concatenate(self._chunk_ids).tobytes() if self._chunk_ids else b"",
            self._decodes.astype(np.int32).tobytes(),
            cold,
            np.array(self._labels, np.int32).tobytes(),
            after,
        )

    def flight(self) -> Flight:
        """What the result will be read by."""
        first = np.array([slot for slot, _, samples in self._chunks if samples], np.int64)
        sampling = np.concatenate([first, self._decodes]) if len(first) else self._decodes
        return Flight(self.number, sampling, self._prefilled, self._held, self._scored, self._left)


def _looks_back(controls: m.Controls | None) -> bool:
    """Whether logits depend on the tokens before."""
    if controls is None:
        return False
    penalties = controls.presence_penalty or controls.frequency_penalty or controls.repetition_penalty != 1.0
    return bool(penalties or controls.bad_words)
