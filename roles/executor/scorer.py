"""The log-probabilities of one step, computed on the compute stream."""

from __future__ import annotations

import torch

from stretto.kernels.logprobs import logprobs
from stretto.roles.executor.models.interface import Logits
from stretto.roles.executor.scoring import Columns, ScoredRows

BLOCK = 64
"""Rows of scored chunks whose logits exist at one time: 12.6 MB of them where there are 49,152 tokens."""


class Scorer:
    """Fills the columns of a step that has scored rows."""

    def __init__(self, rows: ScoredRows[torch.Tensor], columns: Columns[torch.Tensor]) -> None:
        self._rows, self._columns = rows, columns

    def keep(self, logits: torch.Tensor, changing: bool) -> torch.Tensor:
        """The logits of the sampled rows that are scored; a copy where `logits` are about to change."""
        if not changing and len(self._rows.sampled) == len(logits):
            return logits
        return logits.index_select(0, self._rows.sampled)

    def score_sampled(self, kept: torch.Tensor, tokens: torch.Tensor) -> None:
        """tokens: int32, of all sampled rows."""
        if len(kept):
            chosen = tokens.index_select(0, self._rows.sampled)
            logprobs(kept, chosen, *self._part(0, len(kept)))

    def score_chunks(self, logits: Logits) -> None:
        first = len(self._rows.sampled)
        for begin in range(0, len(self._rows.rows), BLOCK):
            rows, labels = (array[begin : begin + BLOCK] for array in self._rows[1:])
            logprobs(logits(rows), labels, *self._part(first + begin, len(rows)))

    def _part(self, begin: int, count: int) -> list[torch.Tensor]:
        return [column[begin : begin + count] for column in self._columns]
