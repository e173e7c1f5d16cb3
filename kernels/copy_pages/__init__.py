"""Copy-on-write's copy: whole KV pages, in every layer at once."""

from __future__ import annotations

import torch

from stretto.kernels.copy_pages import reference
from stretto.kernels.late import Late

__all__ = ["copy_pages"]

gpu = Late("stretto.kernels.copy_pages.triton")


def copy_pages(k_cache: torch.Tensor, v_cache: torch.Tensor, pairs: torch.Tensor) -> None:
    """Copy page `source` over page `destination` for each pair, in order.

    k_cache, v_cache: [layers, pages, page_size, Hk, D]. pairs: int32 [n, 2], (source, destination), where
    the caches are. No page is both a source and a destination within one call. On the GPU the caches are
    contiguous and heads are whole 4-byte words; a pair of negative numbers is passed over.
    """
    if k_cache.is_cuda:
        gpu.copy_pages(k_cache, v_cache, pairs)
    else:
        reference.copy_pages(k_cache, v_cache, pairs)
