"""Causal attention over a paged KV cache (Kwon et al., 2023, arXiv:2309.06180), plain torch, one sequence
at a time.
"""

from __future__ import annotations

import torch


def gather(
    cache: torch.Tensor, pages: torch.Tensor, first: int, length: int, scale: torch.Tensor | None = None
) -> torch.Tensor:
    """Tokens first : length of the sequence that owns `pages`, as float32 [length - first, Hk, D]."""
    page_size = cache.shape[1]
    held = pages[first // page_size : -(-length // page_size)].long()
    begin = first // page_size * page_size
    x = cache[held].flatten(0, 1)[first - begin : length - begin].float()
    return x if scale is None else x * scale[:, None]


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
) -> None:
    """See `stretto.kernels.paged_attention.paged_attention`."""
    group = q.shape[1] // k_cache.shape[2]
    starts = query_starts.tolist()
    for index, length in enumerate(kv_lengths.tolist()):
        begin, end = starts[index], starts[index + 1]
        if begin == end:
            continue
        before = length - (end - begin)
        first = max(before - window + 1, 0) if window else 0
        k = gather(k_cache, block_tables[index], first, length, k_scale).repeat_interleave(group, dim=1)
        v = gather(v_cache, block_tables[index], first, length, v_scale).repeat_interleave(group, dim=1)
        scores = torch.einsum("nhd,lhd->hnl", q[begin:end].float(), k) * scale
        own = torch.arange(before, length, device=q.device)[:, None]
        position = torch.arange(first, length, device=q.device)[None, :]
        hidden = (position > own) | (position <= own - window) if window else position > own
        weights = scores.masked_fill(hidden, float("-inf")).softmax(dim=-1)
        out[begin:end] = torch.einsum("hnl,lhd->nhd", weights, v).to(out.dtype)
