"""Swapping: whole KV pages out of the pool into a page-first buffer, and back."""

from __future__ import annotations

import torch

from stretto.kernels.late import Late

__all__ = ["gather_pages", "scatter_pages"]

cpu = Late("stretto.kernels.move_pages.cpu")
gpu = Late("stretto.kernels.move_pages.triton")


def gather_pages(
    k_cache: torch.Tensor, v_cache: torch.Tensor, pages: torch.Tensor, buffer: torch.Tensor
) -> None:
    """buffer[i] = page pages[i], keys and values of all layers; the bytes are the same.

    k_cache, v_cache: [layers, P, page_size, Hk, D], contiguous. pages: int32 [n], where the caches are.
    buffer: [n, layers, 2, page_size, Hk, D], contiguous, keys at 0 and values at 1: a page is one run of
    memory, which one copy brings to another tier. It lies where the caches do, or in pinned memory. On the
    GPU an entry of -1 leaves its part of the buffer as it was, and heads are whole 4-byte words.
    """
    if k_cache.is_cuda:
        gpu.gather_pages(k_cache, v_cache, pages, buffer)
    else:
        cpu.gather_pages(k_cache, v_cache, pages, buffer)


def scatter_pages(
    k_cache: torch.Tensor, v_cache: torch.Tensor, pages: torch.Tensor, buffer: torch.Tensor
) -> None:
    """Page pages[i] = buffer[i]: the inverse of `gather_pages`. Pages are distinct; -1 is passed over."""
    if k_cache.is_cuda:
        gpu.scatter_pages(k_cache, v_cache, pages, buffer)
    else:
        cpu.scatter_pages(k_cache, v_cache, pages, buffer)
