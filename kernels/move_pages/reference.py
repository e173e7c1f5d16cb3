"""Moves of whole KV pages between the pool and a page-first buffer, plain torch."""

from __future__ import annotations

import torch


def gather_pages(
    k_cache: torch.Tensor, v_cache: torch.Tensor, pages: torch.Tensor, buffer: torch.Tensor
) -> None:
    """See `stretto.kernels.move_pages.gather_pages`."""
    for index, cache in enumerate((k_cache, v_cache)):
        buffer[:, :, index] = cache[:, pages.long()].transpose(0, 1)


def scatter_pages(
    k_cache: torch.Tensor, v_cache: torch.Tensor, pages: torch.Tensor, buffer: torch.Tensor
) -> None:
    """See `stretto.kernels.move_pages.scatter_pages`."""
    for index, cache in enumerate((k_cache, v_cache)):
        cache[:, pages.long()] = buffer[:, :, index].transpose(0, 1)
