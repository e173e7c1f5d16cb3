"""A plan for a device that makes its rows itself: a few numbers cross, the rest is made of them there.

All integers of the plan are one int32 array. For a step of decodes alone it has room for a whole bucket of
them, so that equally sized steps are laid out equally; such a step transfers nothing else, unless its rows
have controls or want log-probabilities.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch

from stretto.kernels.prepare_step.state import Deltas
from stretto.roles import messages as m
from stretto.roles.executor.batch import Batch, Rows, Sizes, Updates, pairs, sampling_updates
from stretto.roles.executor.buckets import MOST, bucket_of
from stretto.roles.executor.controls import ControlledRows, ControlUpdates, control_updates, controlled_rows
from stretto.roles.executor.deltas import deltas_of
from stretto.roles.executor.scoring import ScoredRows, Scores, scores_of
from stretto.roles.executor.slots import HostSlots

A = TypeVar("A")
B = TypeVar("B")

ALIGNED = 4
"""Parts begin at multiples of so many numbers, which is 16 bytes."""
SHAPES = ((4,), (-1, 2), (-1, 2), (-1, 3), (-1,), (-1,))
"""Of the fields of `Deltas`."""


class Layout(NamedTuple):
    """How many entries each field of `Deltas` but the first has room for, in one array."""

    admits: int = 0
    appends: int = 0
    chunks: int = 0
    chunk_ids: int = 0
    decodes: int = 0

    @property
    def lengths(self) -> list[int]:
        """Numbers of each field, `counts` first."""
        widths = (2, 2, 3, 1, 1)
        return [4, *(room * width for room, width in zip(self, widths, strict=True))]

    @property
    def starts(self) -> tuple[int, ...]:
        """Where each field begins, and last, where all end."""
        return _starts(self)

    def pack(self, deltas: Deltas[np.ndarray]) -> np.ndarray:
        """The deltas in one int32 array; what they leave free holds zeros."""
        starts = self.starts
        packed = np.zeros(starts[-1], np.int32)
        for start, part in zip(starts, deltas, strict=False):
            packed[start : start + part.size] = part.reshape(-1)
        return packed

    def unpack(self, packed: torch.Tensor) -> Deltas[torch.Tensor]:
        """Views of a packed array."""
        parts = zip(self.starts, self.lengths, SHAPES, strict=False)
        return Deltas(*(packed[start : start + length].view(shape) for start, length, shape in parts))


@lru_cache(1024)
def _starts(layout: Layout) -> tuple[int, ...]:
    starts = [0]
    for length in layout.lengths:
        starts.append(starts[-1] + -(-length // ALIGNED) * ALIGNED)
    return tuple(starts)


@dataclass(frozen=True)
class DeltaBatch(Generic[A]):
    """One step. `A` is `numpy.ndarray` on the host and `torch.Tensor` on the device."""

    sizes: Sizes
    scores: Scores | None
    bucket: int | None
    """Set for a step of decodes alone, that brings no slots and no copies: how many there is room for."""
    layout: Layout
    packed: A
    updates: Updates[A] | None
    """None where there is a bucket. Tables are none of its business."""
    control_updates: ControlUpdates[A] | None
    controlled: ControlledRows[A] | None
    scored: ScoredRows[A] | None

    def move(self, upload: Callable[[Sequence[A]], Sequence[B]]) -> DeltaBatch[B]:
        """The same step with all its arrays taken somewhere else, at once."""
        parts: list[Any] = [self.updates, self.control_updates, self.controlled, self.scored]
        arrays = [self.packed, *(array for part in parts if part is not None for array in part)]
        packed, *rest = upload(arrays)
        moved = iter(rest)
        made: list[Any] = [None if part is None else part._make(islice(moved, len(part))) for part in parts]
        return DeltaBatch(self.sizes, self.scores, self.bucket, self.layout, packed, *made)

    def with_rows(self, rows: Rows[A]) -> Batch[A]:
        """The same step as one whose rows have been made, and whose slots are up to date."""
        updates: Any = self.updates
        return Batch(
            self.sizes, self.scores, updates, rows, self.control_updates, self.controlled, self.scored
        )


def make_delta_batch(plan: m.Plan, slots: HostSlots, vocabulary: int) -> DeltaBatch[np.ndarray]:
    """Apply a plan to the host's slot state and say what crosses.

    Raises RuntimeError for a plan that contradicts that state.
    """
    if bucket := _bucket(plan):
        return _decodes(plan, bucket, slots, vocabulary)
    deltas = deltas_of(plan)
    slots.admit(plan.admits)
    slots.grow(pairs(plan.growth))
    sequences = np.concatenate([deltas.chunks[:, 0], deltas.decodes])
    counts = np.concatenate([deltas.chunks[:, 1], np.ones_like(deltas.decodes)])
    lengths = slots.advance(sequences, counts)
    sampled = np.concatenate([deltas.chunks[:, 2] != 0, np.ones(len(deltas.decodes), bool)])
    sampled_slots, positions = sequences[sampled].astype(np.int64), lengths[sampled]
    sizes = Sizes(
        chunk_rows=len(deltas.chunk_ids),
        decodes=len(deltas.decodes),
        samples=len(sampled_slots),
        width=_width(lengths, slots),
        several=int(np.count_nonzero(deltas.chunks[:, 1] > 1)),
    )
    _check(plan, sizes, deltas)
    layout = Layout(*map(len, deltas[1:]))
    scores, scored = scores_of(plan, slots, sampled_slots, vocabulary)
    return DeltaBatch(
        sizes,
        scores,
        None,
        layout,
        layout.pack(deltas),
        sampling_updates(plan.admits, plan.copies),
        control_updates(plan.admits),
        controlled_rows(slots.kinds, sampled_slots, positions),
        scored,
    )


def _bucket(plan: m.Plan) -> int | None:
    """The bucket of a plan that has one."""
    decodes = len(plan.decodes) // 4
    if not decodes or decodes > MOST or plan.admits or plan.copies or plan.chunks:
        return None
    bucket = bucket_of(decodes)
    return bucket if len(plan.growth) // 8 <= bucket else None


def _decodes(plan: m.Plan, bucket: int, slots: HostSlots, vocabulary: int) -> DeltaBatch[np.ndarray]:
    """What follows of a plan of decodes alone, in a third of the time."""
    decodes, layout = np.frombuffer(plan.decodes, np.int32).astype(np.int64), Layout(0, bucket, 0, 0, bucket)
    _, _, appends, _, _, first, end = layout.starts
    packed = np.zeros(end, np.int32)
    if plan.growth:
        growth = pairs(plan.growth)
        slots.grow(growth)
        packed[1], packed[appends : appends + growth.size] = len(growth), growth.reshape(-1)
    packed[3], packed[first : first + len(decodes)] = len(decodes), decodes
    lengths = slots.advance(decodes, 1)
    sizes = Sizes(0, len(decodes), len(decodes), _width(lengths, slots))
    scores, scored = scores_of(plan, slots, decodes, vocabulary)
    controlled = controlled_rows(slots.kinds, decodes, lengths)
    return DeltaBatch(sizes, scores, bucket, layout, packed, None, None, controlled, scored)


def _width(lengths: np.ndarray, slots: HostSlots) -> int:
    """Pages of the longest sequence."""
    return -(-int(lengths.max(initial=1)) // slots.page_size)


def _check(plan: m.Plan, sizes: Sizes, deltas: Deltas[np.ndarray]) -> None:
    if (rows := int(deltas.chunks[:, 1].sum())) != sizes.chunk_rows:
        raise RuntimeError(f"plan {plan.step} has {sizes.chunk_rows} chunk ids for {rows} rows")
