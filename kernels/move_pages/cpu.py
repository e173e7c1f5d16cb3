"""Page moves on the CPU: plain copies of memory, by the calling thread alone.

A parallel copy would make a second pool of threads beside the one that computes. The interpreter's lock is
not held while memory is copied.
"""

from __future__ import annotations

import numpy as np
import torch


def gather_pages(
    k_cache: torch.Tensor, v_cache: torch.Tensor, pages: torch.Tensor, buffer: torch.Tensor
) -> None:
    """See `stretto.kernels.move_pages.gather_pages`."""
    target = _bytes(buffer)
    for which, cache in enumerate((k_cache, v_cache)):
        source = _bytes(cache)
        for index, page in enumerate(pages.tolist()):
            target[index, :, which] = source[:, page]


def scatter_pages(
    k_cache: torch.Tensor, v_cache: torch.Tensor, pages: torch.Tensor, buffer: torch.Tensor
) -> None:
    """See `stretto.kernels.move_pages.scatter_pages`."""
    source = _bytes(buffer)
    for which, cache in enumerate((k_cache, v_cache)):
        target = _bytes(cache)
        for index, page in enumerate(pages.tolist()):
            target[:, page] = source[index, :, which]


def _bytes(tensor: torch.Tensor) -> np.ndarray:
    """A view of a contiguous tensor's memory, whatever its type."""
    array: np.ndarray = tensor.view(torch.uint8).numpy()
    return array
