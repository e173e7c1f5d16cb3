"""What `stretto.kernels.compiled` compiles of this op."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch

from stretto.kernels.gelu_and_mul.triton import gelu_and_mul


def cases(capability: int) -> Iterator[tuple[str, Callable[[], None]]]:
    """Every type and form; the width is an argument like others."""
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        for tanh in (False, True):
            yield f"{str(dtype)[6:]} {'tanh' if tanh else 'erf'}", partial(_call, dtype, tanh)


def _call(dtype: torch.dtype, tanh: bool) -> None:
    gelu_and_mul(torch.empty(16, 64, dtype=dtype), torch.empty(16, 128, dtype=dtype), tanh)
