"""What input preparation reads and writes. All tensors are on the device."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

import torch

A = TypeVar("A")


class SlotState(NamedTuple):
    """Of S slots. The last one is spare: no sequence has it, rows that only pad a graph name it."""

    lengths: torch.Tensor
    """int32 [S]: tokens whose keys and values the slot's pages hold once the step has run."""
    page_counts: torch.Tensor
    """int32 [S]: how many entries of its block table a slot has."""
    table: torch.Tensor
    """int32 [S, P]: block tables; entries from `page_counts` on hold anything."""
    last_token: torch.Tensor
    """int32 [S]: what each slot sampled last; written by the sampler, only read here."""


class Deltas(NamedTuple, Generic[A]):
    """A step's plan, int32 throughout. Each array may have more room than is used; `counts` says what is."""

    counts: A
    """[4]: admits, appends, chunks and decodes that there are."""
    admits: A
    """[a, 2]: (slot, length) of slots that start afresh, with no page yet."""
    appends: A
    """[e, 2]: (slot, page) to append to the block tables, in order: the pages of admits, then growth."""
    chunks: A
    """[c, 3]: (slot, tokens, whether to sample after them)."""
    chunk_ids: A
    """[i]: the chunks' token ids, one after the other."""
    decodes: A
    """[d]: slots that feed their last token and sample the next."""


class StepInputs(NamedTuple):
    """The forward pass: room for T rows, B sequences and N sampled rows, as `executor.batch.Rows` has them.

    Rows, sequences and samples beyond those of the plan are padding: id 0, position 0, cell -1, the spare
    slot, KV length 0, sampled row 0. The first padded sequences have one padded row each, as long as there
    are any.
    """

    ids: torch.Tensor
    """int32 [T]"""
    positions: torch.Tensor
    """int32 [T]"""
    cells: torch.Tensor
    """int64 [T]: page * page_size + offset, -1 where nothing must be written."""
    slots: torch.Tensor
    """int64 [B]"""
    query_starts: torch.Tensor
    """int32 [B + 1]"""
    kv_lengths: torch.Tensor
    """int32 [B]"""
    block_tables: torch.Tensor
    """int32 [B, P]: entries past a sequence's length are left as they were."""
    sampled_rows: torch.Tensor
    """int64 [N]"""
    sampled_slots: torch.Tensor
    """int64 [N]"""
    sampled_positions: torch.Tensor
    """int64 [N]"""
