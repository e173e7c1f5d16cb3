"""What `stretto.kernels.compiled` compiles of this op."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch

from stretto.kernels.move_pages.triton import gather_pages, scatter_pages


def cases(capability: int) -> Iterator[tuple[str, Callable[[], None]]]:
    """Pages of 16 tokens, 8 heads of 128; words are words, whatever their type."""
    yield "gather 16 x 8 x 128", partial(_call, gather_pages)
    yield "scatter 16 x 8 x 128", partial(_call, scatter_pages)


def _call(move: Callable[..., None]) -> None:
    cache = torch.empty(2, 4, 16, 8, 128, dtype=torch.bfloat16)
    buffer = torch.empty(3, 2, 2, 16, 8, 128, dtype=torch.bfloat16)
    move(cache, cache, torch.empty(3, dtype=torch.int32), buffer)
