"""What `stretto.kernels.compiled` compiles of this op."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch

from stretto.kernels.silu_and_mul.triton import silu_and_mul


def cases(capability: int) -> Iterator[tuple[str, Callable[[], None]]]:
    """Every type; the width is an argument like others."""
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        yield str(dtype)[6:], partial(_call, dtype)


def _call(dtype: torch.dtype) -> None:
    silu_and_mul(torch.empty(16, 64, dtype=dtype), torch.empty(16, 128, dtype=dtype))
