"""What `stretto.kernels.compiled` compiles of this op."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch

from stretto.kernels.rms_norm.triton import rms_norm


def cases(capability: int) -> Iterator[tuple[str, Callable[[], None]]]:
    """Heads and hidden states of the usual sizes, with and without a residual."""
    for width in (64, 128, 2048, 4096, 5120, 8192):
        for residual in (False, True):
            yield f"bfloat16 {width}{' residual' * residual}", partial(_call, width, torch.bfloat16, residual)
    for width, heads in ((64, 8), (128, 8), (128, 32)):
        yield f"bfloat16 {heads} heads of {width}", partial(_heads, heads, width)
    for dtype in (torch.float16, torch.float32):
        yield f"{str(dtype)[6:]} 4096 residual", partial(_call, 4096, dtype, True)


def _heads(count: int, width: int) -> None:
    x, weight = torch.empty(16, 48, width, dtype=torch.bfloat16), torch.empty(width, dtype=torch.bfloat16)
    rms_norm(x[:, :count], x[:, :count], weight, 1e-5)


def _call(width: int, dtype: torch.dtype, residual: bool) -> None:
    x, weight = torch.empty(16, width, dtype=dtype), torch.empty(width, dtype=dtype)
    rms_norm(x, x, weight, 1e-5, torch.empty(16, width) if residual else None)
