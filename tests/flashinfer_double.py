"""A stand-in for the package `flashinfer`: it keeps what it is told, and computes by the reference."""

from __future__ import annotations

from typing import Any

import torch

from stretto.kernels.paged_attention import reference


class BatchPrefillWithPagedKVCacheWrapper:
    """The part of FlashInfer's class of this name that is used; argument names are FlashInfer's."""

    made: list[BatchPrefillWithPagedKVCacheWrapper]
    """All of them, in the order they were made; set by the test."""

    def __init__(self, float_workspace_buffer: torch.Tensor, kv_layout: str) -> None:
        assert kv_layout == "NHD"
        assert float_workspace_buffer.dtype is torch.uint8
        self.workspace = float_workspace_buffer
        self.plans: list[dict[str, Any]] = []
        self.runs = 0
        self.made.append(self)

    def plan(
        self,
        qo_indptr: torch.Tensor,
        paged_kv_indptr: torch.Tensor,
        paged_kv_indices: torch.Tensor,
        paged_kv_last_page_len: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        page_size: int,
        *,
        causal: bool,
        sm_scale: float,
        window_left: int,
        q_data_type: torch.dtype,
        kv_data_type: torch.dtype,
    ) -> None:
        told = dict(locals())
        del told["self"]
        tensors = (qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len)
        assert all(tensor.dtype is torch.int32 and tensor.dim() == 1 for tensor in tensors)
        assert len(qo_indptr) == len(paged_kv_indptr) == len(paged_kv_last_page_len) + 1
        assert len(paged_kv_indices) == paged_kv_indptr[-1]
        assert ((paged_kv_last_page_len >= 1) & (paged_kv_last_page_len <= page_size)).all()
        assert (paged_kv_indices >= 0).all()
        assert causal
        self.plans.append(told)

    def run(
        self,
        q: torch.Tensor,
        paged_kv_cache: tuple[torch.Tensor, torch.Tensor],
        *,
        out: torch.Tensor,
        k_scale: float | None,
        v_scale: float | None,
    ) -> None:
        plan, (keys, values) = self.plans[-1], paged_kv_cache
        assert q.shape == out.shape == (plan["qo_indptr"][-1], plan["num_qo_heads"], plan["head_dim_qk"])
        assert keys.shape[1:] == (plan["page_size"], plan["num_kv_heads"], plan["head_dim_qk"])
        assert (q.dtype, keys.dtype) == (plan["q_data_type"], plan["kv_data_type"])
        self.runs += 1
        counts = plan["paged_kv_indptr"].diff()
        tables = torch.zeros(len(counts), int(counts.max()), dtype=torch.int32)
        for table, pages in zip(tables, plan["paged_kv_indices"].split(counts.tolist()), strict=True):
            table[: len(pages)] = pages
        lengths = (counts - 1) * plan["page_size"] + plan["paged_kv_last_page_len"]
        heads = (None if unit is None else torch.full(keys.shape[2:3], unit) for unit in (k_scale, v_scale))
        scales = dict(zip(("k_scale", "v_scale"), heads, strict=True))
        cache = (keys, values, tables, plan["qo_indptr"], lengths)
        reference.paged_attention(out, q, *cache, plan["sm_scale"], window=plan["window_left"] + 1, **scales)
