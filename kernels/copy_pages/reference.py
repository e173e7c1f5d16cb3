"""Copies of whole KV pages, plain torch."""

from __future__ import annotations

import torch


def copy_pages(k_cache: torch.Tensor, v_cache: torch.Tensor, pairs: torch.Tensor) -> None:
    """See `stretto.kernels.copy_pages.copy_pages`."""
    for source, destination in pairs.tolist():
        k_cache[:, destination] = k_cache[:, source]
        v_cache[:, destination] = v_cache[:, source]
