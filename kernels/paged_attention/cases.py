"""What `stretto.kernels.compiled` compiles of this op."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch

from stretto.kernels.paged_attention.triton import paged_attention

TYPES = {
    "bf16": (torch.bfloat16, torch.bfloat16),
    "fp16": (torch.float16, torch.float16),
    "fp32": (torch.float32, torch.float32),
    "fp8": (torch.bfloat16, torch.float8_e4m3fn),
}


def cases(capability: int) -> Iterator[tuple[str, Callable[[], None]]]:
    """Every head size and type, and a window, for four query heads a KV head and pages of 16."""
    for head_dim in (64, 80, 96, 128, 256):
        for name in TYPES:
            if name != "fp8" or capability >= 89:
                yield f"{name} {head_dim}", partial(_call, head_dim, *TYPES[name], 0)
    for head_dim in (64, 128):
        yield f"bf16 {head_dim} window", partial(_call, head_dim, *TYPES["bf16"], 1024)


def _call(head_dim: int, dtype: torch.dtype, cache_dtype: torch.dtype, window: int) -> None:
    qkv = torch.empty(16, 48, head_dim, dtype=dtype)
    out, cache = torch.empty(16, 32, head_dim, dtype=dtype), torch.empty(9, 16, 8, head_dim).to(cache_dtype)
    scale = torch.empty(8) if cache_dtype.itemsize == 1 else None
    tables, starts = torch.empty(2, 256, dtype=torch.int32), torch.empty(3, dtype=torch.int32)
    lengths = torch.empty(2, dtype=torch.int32)
    paged_attention(
        out,
        qkv[:, :32],
        cache,
        cache,
        tables,
        starts,
        lengths,
        scale=head_dim**-0.5,
        window=window,
        k_scale=scale,
        v_scale=scale,
    )
