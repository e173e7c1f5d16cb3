"""Copy-on-write's copy: whole KV pages, in every layer at once."""

from __future__ import annotations

import torch

from stretto.kernels.copy_pages.reference import copy_pages as _copy_pages

__all__ = ["copy_pages"]


def copy_pages(k_cache: torch.Tensor, v_cache: torch.Tensor, pairs: torch.Tensor) -> None:
    """Copy page `source` over page `destination` for each pair, in order.

    k_cache, v_cache: [layers, pages, page_size, Hk, D]. pairs: int32 [n, 2], (source, destination), on the
    host for the CPU. No page is both a source and a destination within one call.
    """
    _copy_pages(k_cache, v_cache, pairs)
