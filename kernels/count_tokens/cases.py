"""What `stretto.kernels.compiled` compiles of this op."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from stretto.kernels.count_tokens.triton import count_tokens


def cases(capability: int) -> Iterator[tuple[str, Callable[[], None]]]:
    """One form."""
    yield "int32", _call


def _call() -> None:
    seen, history = torch.empty(4, 128, dtype=torch.int32), torch.empty(4, 33, dtype=torch.int32)
    at = torch.empty(2, dtype=torch.int64)
    count_tokens(seen, history, at, at, torch.empty(2, dtype=torch.int32))
