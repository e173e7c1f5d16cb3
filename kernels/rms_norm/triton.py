"""RMSNorm on the GPU: a program for each row, or for some rows where they are short.

A row is read once, held in registers and written once, so the kernel runs at memory bandwidth. How a row is
summed depends on its width alone, never on how many rows there are.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from stretto.kernels.generation import choose

CONFIGS = {80: {"threads": 512, "tile": 1024}}
"""`threads`: at most so many for a program, of 8 elements each. `tile`: elements that short rows share."""


@triton.jit(do_not_specialize=["count"])
def rms_norm_kernel(
    out: tl.tensor,
    x: tl.tensor,
    weight: tl.tensor,
    residual: tl.tensor,
    count: tl.tensor,
    out_stride: tl.tensor,
    out_head_stride: tl.tensor,
    x_stride: tl.tensor,
    x_head_stride: tl.tensor,
    residual_stride: tl.tensor,
    eps: tl.tensor,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    rows = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    columns = tl.arange(0, BLOCK)[None, :]
    tokens, heads = rows // HEADS, rows % HEADS
    keep = (rows < count) & (columns < WIDTH)
    mine = x + tokens * x_stride + heads * x_head_stride
    hidden = tl.load(mine + columns, mask=keep, other=0.0).to(tl.float32)
    if residual is not None:
        at = residual + rows * residual_stride + columns
        hidden += tl.load(at, mask=keep, other=0.0)
        tl.store(at, hidden, mask=keep)
    mean = tl.sum(hidden * hidden, axis=1, keep_dims=True) / WIDTH
    gain = tl.load(weight + columns, mask=columns < WIDTH, other=0.0).to(tl.float32)
    normed = hidden * (1.0 / tl.sqrt_rn(mean + eps)) * gain
    to = out + tokens * out_stride + heads * out_head_stride
    tl.store(to + columns, normed.to(out.dtype.element_ty), mask=keep)


def rms_norm(
    out: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    residual: torch.Tensor | None = None,
) -> None:
    """See `stretto.kernels.rms_norm.rms_norm`. Elements of a row lie side by side."""
    count, heads, width = x.shape[:-1].numel(), x.shape[1] if x.dim() == 3 else 1, x.shape[-1]
    config = choose(CONFIGS)
    block = triton.next_power_of_2(width)
    rows = max(1, config["tile"] // block)
    threads = min(config["threads"], max(32, rows * block // 8))
    rms_norm_kernel[(triton.cdiv(count, rows),)](
        out,
        x,
        weight,
        residual,
        count,
        out.stride(0),
        out.stride(-2),
        x.stride(0),
        x.stride(-2),
        0 if residual is None else residual.stride(0),
        eps,
        HEADS=heads,
        WIDTH=width,
        ROWS=rows,
        BLOCK=block,
        num_warps=threads // 32,
    )
