"""Causal attention of a mixed batch, decodes and prompt chunks alike, over the paged KV cache."""

from __future__ import annotations

from typing import Any

import torch

from stretto.kernels.late import Late
from stretto.kernels.paged_attention import reference

__all__ = ["paged_attention"]

cpu = Late("stretto.kernels.paged_attention.cpu")
gpu = Late("stretto.kernels.paged_attention.triton")


def paged_attention(
    out: torch.Tensor,
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_tables: torch.Tensor,
    query_starts: torch.Tensor,
    kv_lengths: torch.Tensor,
    scale: float,
    *,
    window: int = 0,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
    chunks: tuple[int, int] | None = None,
    scratch: torch.Tensor | None = None,
) -> None:
    """out = softmax(q k^T * scale) v for every query row over the keys at its own and earlier positions.

    out, q: [T, Hq, D], tokens may be strided. k_cache, v_cache: [pages, page_size, Hk, D]; Hk divides Hq,
    and query head h reads KV head h // (Hq / Hk). block_tables: int32 [B, max_pages], a sequence's pages in
    order. query_starts: int32 [B + 1]; kv_lengths: int32 [B]. Sequence b has the rows query_starts[b] :
    query_starts[b + 1], which are its last: row i of n sits at position kv_lengths[b] - n + i. Pages past a
    sequence's length are never read.

    window: how many positions a row sees, its own the last of them, or 0 for all; pages before those of all
    rows are never read. k_scale, v_scale: float32 [Hk], or None; an fp8 (e4m3) cache holds keys and values
    divided by them. Any other is of q's type; on the CPU float16 as well.

    For GPUs: chunks, if the host knows it, how many sequences have more than one row, and how many rows those
    have together, or more: programs are launched for no others, and none at all where there are no such.
    scratch, of decodes: float32, `gpu.scratch_size(...)` long, or None to allocate it in the call. The host
    reads no argument, so a call can be captured in a graph. It covers all lengths that block_tables has room
    for, and sequences of one row and no keys, whose rows of out stay as they were.
    """
    cache = (k_cache, v_cache, block_tables, query_starts, kv_lengths)
    options: dict[str, Any] = {"window": window, "k_scale": k_scale, "v_scale": v_scale}
    if q.is_cpu and cpu.fits(out, q, k_cache, v_cache, k_scale, v_scale):
        cpu.paged_attention(out, q, *cache, scale, **options)
    elif q.is_cuda:
        gpu.paged_attention(out, q, *cache, scale, **options, chunks=chunks, scratch=scratch)
    else:
        reference.paged_attention(out, q, *cache, scale, **options)
