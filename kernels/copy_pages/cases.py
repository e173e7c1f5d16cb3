"""What `stretto.kernels.compiled` compiles of this op."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from stretto.kernels.copy_pages.triton import copy_pages


def cases(capability: int) -> Iterator[tuple[str, Callable[[], None]]]:
    """Pages of 16 tokens, 8 heads of 128; words are words, whatever their type."""
    yield "16 x 8 x 128", _call


def _call() -> None:
    cache = torch.empty(2, 4, 16, 8, 128, dtype=torch.bfloat16)
    copy_pages(cache, cache, torch.empty(2, 2, dtype=torch.int32))
