"""From logits to tokens, on the compute stream."""

from __future__ import annotations

import torch

from stretto.kernels.sample import State, sample
from stretto.roles.executor.batch import Batch
from stretto.roles.executor.control_state import ControlState
from stretto.roles.executor.models.interface import Logits
from stretto.roles.executor.scorer import Scorer
from stretto.roles.executor.slots import SAMPLING, DeviceSlots


class Sampler:
    """Samples by the slots' parameters and controls, and leaves in their state what the next step needs."""

    def __init__(self, slots: DeviceSlots, controls: ControlState) -> None:
        self._controls = controls
        self._state = State(**{name: getattr(slots, name) for name in (*SAMPLING, "last_token")})

    def __call__(
        self, logits: Logits, batch: Batch[torch.Tensor], tokens: torch.Tensor, scorer: Scorer | None
    ) -> None:
        """Write the sampled rows' tokens, int32 [S], and what the scorer is there for.

        Log-probabilities are those of the logits as they come, before any controls.
        """
        if batch.sizes.samples:
            self._sample_rows(logits(batch.rows.sampled_rows), batch, tokens, scorer)
        if scorer is not None:
            scorer.score_chunks(logits)

    def _sample_rows(
        self, logits: torch.Tensor, batch: Batch[torch.Tensor], tokens: torch.Tensor, scorer: Scorer | None
    ) -> None:
        controlled = batch.controlled
        kept = None if scorer is None else scorer.keep(logits, changing=controlled is not None)
        if controlled is not None:
            self._controls.apply(logits, controlled)
        self.sample(logits, batch.rows.sampled_slots, batch.rows.sampled_positions, tokens)
        if controlled is not None:
            self._controls.count(tokens.clamp(min=0), controlled)
        if scorer is not None and kept is not None:
            scorer.score_sampled(kept, tokens)

    def sample(
        self, logits: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor, tokens: torch.Tensor
    ) -> None:
        """Write tokens for the host, -1 for a row that failed, and the slots' for the next step."""
        sample(logits, slots, positions, self._state, out=tokens)
