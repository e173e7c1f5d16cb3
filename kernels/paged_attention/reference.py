"""Causal attention over a paged KV cache (Kwon et al., 2023, arXiv:2309.06180), plain torch, one sequence
at a time.
"""

from __future__ import annotations

import torch


def gather(cache: torch.Tensor, pages: torch.Tensor, length: int) -> torch.Tensor:
    """The first `length` tokens of the sequence that owns `pages`, as float32 [length, Hk, D]."""
    count = -(-length // cache.shape[1])
    return cache[pages[:count].long()].flatten(0, 1)[:length].float()


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
    """See `stretto.kernels.paged_attention.paged_attention`."""
    group = q.shape[1] // k_cache.shape[2]
    starts = query_starts.tolist()
    for index, length in enumerate(kv_lengths.tolist()):
        begin, end = starts[index], starts[index + 1]
        if begin == end:
            continue
        k = gather(k_cache, block_tables[index], length).repeat_interleave(group, dim=1)
        v = gather(v_cache, block_tables[index], length).repeat_interleave(group, dim=1)
        scores = torch.einsum("nhd,lhd->hnl", q[begin:end].float(), k) * scale
        last = torch.arange(length - (end - begin), length, device=q.device)
        hidden = torch.arange(length, device=q.device)[None, :] > last[:, None]
        weights = scores.masked_fill(hidden, float("-inf")).softmax(dim=-1)
        out[begin:end] = torch.einsum("hnl,lhd->nhd", weights, v).to(out.dtype)
