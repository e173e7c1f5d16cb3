"""The runner for attention that is planned on the host: it says what a step will be before its layers run.

Rows are made on the host, which therefore knows all lengths, and every step is launched kernel by kernel: a
plan belongs to one step, and a graph would repeat it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch

from stretto.roles import messages as m
from stretto.roles.executor.batch import Batch, Sizes
from stretto.roles.executor.landing import Landing
from stretto.roles.executor.runner import Runner
from stretto.roles.executor.scoring import Scores

A = TypeVar("A")
B = TypeVar("B")


class Planned(Protocol):
    """See `kernels.paged_attention.flashinfer`."""

    def begin(self, query_starts: np.ndarray, kv_lengths: np.ndarray) -> None:
        """The layers that run next are those of a step with these sequences."""


@dataclass(frozen=True)
class KnownBatch(Generic[A]):
    """A batch, and what the host still knows of its rows when they have moved."""

    batch: Batch[A]
    query_starts: np.ndarray
    kv_lengths: np.ndarray

    @property
    def sizes(self) -> Sizes:
        """Of the batch."""
        return self.batch.sizes

    @property
    def scores(self) -> Scores | None:
        """Of the batch."""
        return self.batch.scores

    def move(self, upload: Callable[[Sequence[A]], Sequence[B]]) -> KnownBatch[B]:
        """See `Batch.move`."""
        return KnownBatch(self.batch.move(upload), self.query_starts, self.kv_lengths)


class PlannedRunner(Runner):
    """See `Runner`. attention: what the model's layers call."""

    def __init__(self, *, attention: Planned, **rest: Any) -> None:
        super().__init__(**rest)
        self._attention = attention

    def _make_batch(self, plan: m.Plan) -> KnownBatch[np.ndarray]:
        batch = super()._make_batch(plan)
        return KnownBatch(batch, batch.rows.query_starts, batch.rows.kv_lengths)

    def _execute(self, batch: Any, landing: Landing) -> None:
        known: KnownBatch[torch.Tensor] = batch
        if known.sizes.rows:
            self._attention.begin(known.query_starts, known.kv_lengths)
        super()._execute(known.batch, landing)
