"""What `stretto.kernels.compiled` compiles of this op."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from stretto.kernels.apply_controls.state import State
from stretto.kernels.apply_controls.triton import apply_controls


def cases(capability: int) -> Iterator[tuple[str, Callable[[], None]]]:
    """One form."""
    yield "float32", _call


def _call() -> None:
    whole, real = torch.empty(4, 128, dtype=torch.int32), torch.empty(4, 128)
    column, strength = whole[0], real[0]
    state = State(
        column, real, whole[:, :16].contiguous(), whole, whole, column, column, strength, strength, strength
    )
    at = torch.empty(2, dtype=torch.int64)
    apply_controls(real, at, at, at, state)
