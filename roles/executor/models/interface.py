"""What the runner needs of a model, whatever its architecture."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch

from stretto.roles.executor.kv import KVCache

Logits = Callable[[torch.Tensor], torch.Tensor]
"""From rows of a step, int64 [S], to their logits, float32 [S, vocab_size], valid until the next call. The
caller may write to them."""


class Context(NamedTuple):
    """Where the rows of a step stand; T rows of B sequences. `batch.Rows` says what each means."""

    positions: torch.Tensor
    """int32 [T]"""
    cells: torch.Tensor
    """int64 [T]; [groups, T] where the model has several groups of layers"""
    block_tables: torch.Tensor
    """int32 [B, width], or [groups, B, width]; pages that no layer of the group looks at any more are -1"""
    query_starts: torch.Tensor
    """int32 [B + 1]"""
    kv_lengths: torch.Tensor
    """int32 [B]"""
    states: torch.Tensor | None = None
    """int32 [B, pages]: the pages of each sequence's state, where the model has any. They hold what the model
    left there in the step before; a sequence's first step finds nothing of use."""
    chunks: tuple[int, int] | None = None
    """How many of the sequences have more than one row, and how many rows those have together, or more; None:
    not known"""

    def of_group(self, group: int) -> Context:
        """What one of several groups of layers sees."""
        return self._replace(cells=self.cells[group], block_tables=self.block_tables[group])


class Model(Protocol):
    """A network that is called once per step, on the device's stream."""

    vocab_size: int
    kv_windows: tuple[int, ...]
    """The window of each group of layers, 0 for none: see `models.groups`."""
    kv_layers: int
    """Of a group: what one page holds."""
    state_pages: int
    """Pages that hold what a sequence carries along in a fixed size, whatever its length, such as the states
    of linear attention; 0: none."""
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    """Type of activations."""
    kv_dtype: torch.dtype
    """Type of the keys and values in the pool."""

    def __call__(self, ids: torch.Tensor, context: Context, cache: KVCache) -> Logits:
        """Feed all rows, ids int32 [T], and write their keys and values to the pool.

        Logits are computed for the rows that are asked for, in as many calls as memory demands, until the
        next step. A row's result depends only on its own sequence, never on what else is in the step.
        """
