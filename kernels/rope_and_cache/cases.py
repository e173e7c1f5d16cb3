"""What `stretto.kernels.compiled` compiles of this op."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch

from stretto.kernels.rope_and_cache.triton import rope_and_cache


def cases(capability: int) -> Iterator[tuple[str, Callable[[], None]]]:
    """Every head size and type, for four query heads a KV head; fp8 where the GPU has the type."""
    for head_dim in (64, 80, 96, 128, 256):
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            yield f"{str(dtype)[6:]} {head_dim}", partial(_call, head_dim, dtype, dtype)
        if capability >= 89:
            yield f"fp8 {head_dim}", partial(_call, head_dim, torch.bfloat16, torch.float8_e4m3fn)


def _call(head_dim: int, dtype: torch.dtype, cache_dtype: torch.dtype) -> None:
    qkv = torch.empty(2, 48, head_dim, dtype=dtype)
    q, k, v = qkv.split([32, 8, 8], dim=1)
    cache = torch.empty(4, 16, 8, head_dim, dtype=cache_dtype)
    scale = torch.empty(8) if cache_dtype.itemsize == 1 else None
    positions, slots = torch.empty(2, dtype=torch.int32), torch.empty(2, dtype=torch.int64)
    rope_and_cache(q, k, v, torch.empty(9, head_dim), positions, slots, cache, cache, scale, scale)
