"""A plan turned into arrays: everything a step needs that the host can know, vectorised over rows.

Two words for rows: a *row* is one token of the step, a *sequence* is one chunk or one decode. Rows come in
the order of the plan, all chunks' tokens first, then one row for each decode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from stretto.roles import messages as m
from stretto.roles.executor.controls import ControlledRows, ControlUpdates, control_updates, controlled_rows
from stretto.roles.executor.scoring import ScoredRows, Scores, scores_of
from stretto.roles.executor.slots import HostSlots

A = TypeVar("A")
B = TypeVar("B")


class Updates(NamedTuple, Generic[A]):
    """What changes on the device before the forward pass: n slots' sampling parameters, tables, pages."""

    slots: A
    """int64 [n]: the slots that the next five columns are for."""
    temperature: A
    """float32 [n]"""
    top_k: A
    """int32 [n]"""
    top_p: A
    """float32 [n]"""
    min_p: A
    """float32 [n]"""
    seed: A
    """int64 [n]: the bits of the unsigned seed."""
    entries: A
    """int64 [e, 3]: (slot, index, page) to write into the block tables."""
    copies: A
    """int32 [c, 2]: (source, destination) pages."""


class Rows(NamedTuple, Generic[A]):
    """The forward pass: T rows of B sequences, of which S rows are sampled."""

    ids: A
    """int32 [T]: token ids; those of decode rows are filled in on the device."""
    positions: A
    """int32 [T]: each row's place in its sequence."""
    cells: A
    """int64 [T]: where each row's key and value go, page * page_size + offset."""
    slots: A
    """int64 [B]: each sequence's slot."""
    query_starts: A
    """int32 [B + 1]: sequence b has the rows query_starts[b] up to query_starts[b + 1]."""
    kv_lengths: A
    """int32 [B]: tokens of the sequence once the step has run."""
    sampled_rows: A
    """int64 [S], in the order of the result's tokens."""
    sampled_slots: A
    """int64 [S]"""
    sampled_positions: A
    """int64 [S]: the sampled tokens' places in their sequences, which are the generator's counters."""


@dataclass(frozen=True)
class Sizes:
    """What the host must know of a step to launch it."""

    chunk_rows: int
    """Rows before the first decode row."""
    decodes: int
    samples: int
    width: int
    """Block table entries that the longest sequence of the step uses."""
    several: int = 0
    """Sequences of more than one row."""

    @property
    def rows(self) -> int:
        return self.chunk_rows + self.decodes

    @property
    def chunks(self) -> tuple[int, int]:
        """See `models.interface.Context`."""
        return self.several, self.chunk_rows


@dataclass(frozen=True)
class Batch(Generic[A]):
    """One step. `A` is `numpy.ndarray` on the host and `torch.Tensor` on the device."""

    sizes: Sizes
    scores: Scores | None
    """What the host must know of `scored`."""
    updates: Updates[A] | None
    """None where nothing changes."""
    rows: Rows[A]
    control_updates: ControlUpdates[A] | None = None
    controlled: ControlledRows[A] | None = None
    scored: ScoredRows[A] | None = None
    """The last three are there only where a request has controls or wants log-probabilities."""

    def move(self, upload: Callable[[Sequence[A]], Sequence[B]]) -> Batch[B]:
        """The same step with all its arrays taken somewhere else, at once."""
        parts: list[Any] = [self.updates, self.rows, self.control_updates, self.controlled, self.scored]
        moved = iter(upload([array for part in parts if part is not None for array in part]))
        made: list[Any] = [None if part is None else part._make(islice(moved, len(part))) for part in parts]
        return Batch(self.sizes, self.scores, *made)


def make_batch(plan: m.Plan, slots: HostSlots, vocabulary: int) -> Batch[np.ndarray]:
    """Apply a plan to the host's slot state and lay out its step.

    Raises RuntimeError for a plan that contradicts that state.
    """
    updates = _updates(plan, slots)
    decodes = np.frombuffer(plan.decodes, np.int32).astype(np.int64)
    mixed = plan.chunks or plan.chunk_ids
    rows = _rows(plan, slots, decodes) if mixed else _decode_rows(slots, decodes)
    sizes = Sizes(
        chunk_rows=len(rows.ids) - len(decodes),
        decodes=len(decodes),
        samples=len(rows.sampled_rows),
        width=-(-max(rows.kv_lengths.tolist(), default=1) // slots.page_size),
        several=int(np.count_nonzero(np.diff(rows.query_starts) > 1)) if mixed else 0,
    )
    scores, scored = scores_of(plan, slots, rows.sampled_slots, vocabulary)
    return Batch(
        sizes,
        scores,
        updates,
        rows,
        control_updates(plan.admits),
        controlled_rows(slots.kinds, rows.sampled_slots, rows.sampled_positions),
        scored,
    )


def _updates(plan: m.Plan, slots: HostSlots) -> Updates[np.ndarray] | None:
    """Admits, then growth: a slot admitted by this plan may grow in it."""
    if not (plan.admits or plan.growth or plan.copies):
        return None
    entries = np.concatenate([slots.admit(plan.admits), slots.grow(pairs(plan.growth))])
    return sampling_updates(plan.admits, plan.copies)._replace(entries=entries)


def sampling_updates(admits: Sequence[m.Admit], copies: bytes) -> Updates[np.ndarray]:
    """Updates without entries in the block tables."""
    wanted = [admit.sampling for admit in admits]
    return Updates(
        slots=np.array([admit.slot for admit in admits], np.int64),
        temperature=np.array([sampling.temperature for sampling in wanted], np.float32),
        top_k=np.array([sampling.top_k for sampling in wanted], np.int32),
        top_p=np.array([sampling.top_p for sampling in wanted], np.float32),
        min_p=np.array([sampling.min_p for sampling in wanted], np.float32),
        seed=np.array([sampling.seed for sampling in wanted], np.uint64).view(np.int64),
        entries=np.empty((0, 3), np.int64),
        copies=pairs(copies),
    )


def _decode_rows(slots: HostSlots, sequences: np.ndarray) -> Rows[np.ndarray]:
    """What `_rows` would make of decodes alone, in a third of the time; sequences: int64 [B]."""
    before = slots.lengths[sequences]
    after = before + 1
    slots.lengths[sequences] = after
    starts = np.arange(len(sequences) + 1)
    return Rows(
        ids=np.zeros(len(sequences), np.int32),
        positions=before.astype(np.int32),
        cells=slots.cells(sequences, before),
        slots=sequences,
        query_starts=starts.astype(np.int32),
        kv_lengths=after.astype(np.int32),
        sampled_rows=starts[:-1],
        sampled_slots=sequences,
        sampled_positions=after,
    )


def _rows(plan: m.Plan, slots: HostSlots, decodes: np.ndarray) -> Rows[np.ndarray]:
    """Advance the sequences by their tokens and say where each token stands."""
    chunks = np.frombuffer(plan.chunks, np.int32).reshape(-1, 3).astype(np.int64)
    sequences = np.concatenate([chunks[:, 0], decodes])
    counts = np.concatenate([chunks[:, 1], np.ones_like(decodes)])
    samples = np.concatenate([chunks[:, 2] != 0, np.ones(len(decodes), bool)])
    before = slots.lengths[sequences]
    starts = np.concatenate([[0], np.cumsum(counts)])
    positions = np.arange(starts[-1]) + np.repeat(before - starts[:-1], counts)
    after = before + counts
    slots.lengths[sequences] = after
    return Rows(
        ids=_ids(plan, int(chunks[:, 1].sum()), len(decodes)),
        positions=positions.astype(np.int32),
        cells=slots.cells(np.repeat(sequences, counts), positions),
        slots=sequences,
        query_starts=starts.astype(np.int32),
        kv_lengths=after.astype(np.int32),
        sampled_rows=starts[1:][samples] - 1,
        sampled_slots=sequences[samples],
        sampled_positions=after[samples],
    )


def pairs(data: bytes) -> np.ndarray:
    """int32 [n, 2], of a message's buffer."""
    return np.frombuffer(data, np.int32).reshape(-1, 2).copy()


def _ids(plan: m.Plan, chunk_rows: int, decodes: int) -> np.ndarray:
    chunk_ids = np.frombuffer(plan.chunk_ids, np.int32)
    if len(chunk_ids) != chunk_rows:
        raise RuntimeError(f"plan {plan.step} has {len(chunk_ids)} chunk ids for {chunk_rows} rows")
    return np.concatenate([chunk_ids, np.zeros(decodes, np.int32)])
