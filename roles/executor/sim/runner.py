"""A runner whose forward pass takes time and computes nothing.

All that the host does for a step is done as for a real device: plans become batches, are uploaded, queued
and collected. On the stream, the model's work is replaced by its duration, and its logits by a script.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch

from stretto.roles import messages as m
from stretto.roles.executor.batch import Batch, Rows
from stretto.roles.executor.device_sim import SimStream
from stretto.roles.executor.kv import KVCache
from stretto.roles.executor.landing import Landing
from stretto.roles.executor.models.interface import Context, Logits
from stretto.roles.executor.runner import Runner, scorer_of
from stretto.roles.executor.sim.cost import StepSeconds, Work, work_of
from stretto.roles.executor.sim.script import Script

UNLIKELY = -1e9
"""The logit of every token but the script's, which has 0."""


@dataclass
class Absent:
    """The simulated network: its sizes are real, see `interface.Model`."""

    vocab_size: int
    """Of the tokenizer that serves in its place."""
    kv_layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    kv_dtype: torch.dtype
    kv_windows: tuple[int, ...] = (0,)
    state_pages: int = 0

    def __call__(self, ids: torch.Tensor, context: Context, cache: KVCache) -> Logits:
        raise RuntimeError("a simulated network has no logits; SimulatedRunner does without")


class SimulatedRunner(Runner):
    """See `Runner`; `seconds` is how long a step takes and `script` what it says. The device is a SimDevice,
    and the pool may have no memory ("meta" tensors).
    """

    def __init__(self, *, seconds: StepSeconds, script: Script, slots: int, **rest: Any) -> None:
        super().__init__(slots=slots, **rest)
        self._seconds, self._script = seconds, script
        self._spend = cast(SimStream, self._stream).spend
        self._prompts = np.zeros(slots, np.int64)
        """By slot: tokens of the sequence that are prompt."""

    def launch(self, plan: m.Plan) -> None:
        for admit in plan.admits:  # no step on the stream uses the slot: it is free
            self._prompts[admit.slot] = admit.prompt_length
        super().launch(plan)

    # What follows runs on the stream.

    def _execute(self, batch: Batch[torch.Tensor], landing: Landing) -> None:
        self._update_slots(batch)
        self._spend(self._seconds(self._work(batch)))
        if batch.controlled is None and batch.scored is None:
            said = self._said(batch.rows, batch.rows.sampled_rows)
            landing.tokens.tensor[: batch.sizes.samples] = said
            self._state.last_token[batch.rows.sampled_slots] = said
        elif batch.sizes.rows:
            tokens = landing.tokens.tensor[: batch.sizes.samples]
            self._sampler(self._logits(batch.rows), batch, tokens, scorer_of(batch, landing))

    def _work(self, batch: Batch[torch.Tensor]) -> Work:
        copied = 0
        if batch.updates is not None:
            copied = len(batch.updates.copies) * self._cache.keys.shape[2]
        counts = np.diff(batch.rows.query_starts.numpy()).astype(np.int64)
        return work_of(counts, batch.rows.kv_lengths.numpy().astype(np.int64), batch.sizes.samples, copied)

    def _logits(self, rows: Rows[torch.Tensor]) -> Logits:
        """For steps that look at logits: those that leave no doubt of what the script says."""

        def logits(wanted: torch.Tensor) -> torch.Tensor:
            said = self._said(rows, wanted).long().unsqueeze(1)
            return torch.full((len(wanted), self._model.vocab_size), UNLIKELY).scatter_(1, said, 0.0)

        return logits

    def _said(self, rows: Rows[torch.Tensor], wanted: torch.Tensor) -> torch.Tensor:
        """The tokens after the wanted rows of the step, int32 [n]. Greedy sequences have no seed."""
        sequences = torch.searchsorted(rows.query_starts, wanted, right=True) - 1
        slots = rows.slots[sequences]
        seeds = torch.where(self._state.temperature[slots] > 0, self._state.seed[slots], 0)
        positions = rows.positions[wanted].numpy().astype(np.int64) + 1
        outputs = positions - self._prompts[slots.numpy()]
        return torch.from_numpy(self._script(seeds.numpy().view(np.uint64), positions, outputs))
