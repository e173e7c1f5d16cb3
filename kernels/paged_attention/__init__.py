"""Causal attention of a mixed batch, decodes and prompt chunks alike, over the paged KV cache."""

from __future__ import annotations

import torch

from stretto.kernels.paged_attention import cpu, reference

__all__ = ["paged_attention"]


def paged_attention(
    out: torch.Tensor,
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_tables: torch.Tensor,
    query_starts: torch.Tensor,
    kv_lengths: torch.Tensor,
    scale: float,
) -> None:
    """out = softmax(q k^T * scale) v for every query row over the keys at its own and earlier positions.

    out, q: [T, Hq, D], tokens may be strided. k_cache, v_cache: [pages, page_size, Hk, D]; Hk divides Hq,
    and query head h reads KV head h // (Hq / Hk). block_tables: int32 [B, max_pages], a sequence's pages in
    order. query_starts: int32 [B + 1]; kv_lengths: int32 [B]. Sequence b has the rows query_starts[b] :
    query_starts[b + 1], which are its last: row i of n sits at position kv_lengths[b] - n + i. Pages past a
    sequence's length are never read.
    """
    if cpu.fits(out, q, k_cache, v_cache):
        cpu.paged_attention(out, q, k_cache, v_cache, block_tables, query_starts, kv_lengths, scale)
    else:
        reference.paged_attention(out, q, k_cache, v_cache, block_tables, query_starts, kv_lengths, scale)
