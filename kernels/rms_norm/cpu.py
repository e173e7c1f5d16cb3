"""RMSNorm on the CPU: one pass for the residual and the sum of squares, one for the scaling.

The sum's order is fixed by the row length alone, so a row's bits depend on nothing but the row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from stretto.kernels import simd
from stretto.kernels.pool import (
    arguments,
    floats,
    kernel,
    share,
    thread_count,
    thread_index,
    threads_for,
    unpack,
)

GRAIN = 1 << 15
"""Elements under which one thread is used: 32 K take it 4.5 us, and waking another some 3 us."""

_Args = arguments(
    "out x weight residual rows heads width"
    " out_stride out_head_stride x_stride x_head_stride residual_stride",
    "eps",
)


@simd.device()
def _add_row(residual: Any, start: int, x: Any, x_start: int, width: int) -> None:
    whole = width - width % simd.LANES
    for i in range(0, whole, simd.LANES):
        simd.store(residual, start + i, simd.add(simd.load(residual, start + i), simd.load(x, x_start + i)))
    rest = width - whole
    last = simd.add(simd.load_first(residual, start + whole, rest), simd.load_first(x, x_start + whole, rest))
    simd.store_first(residual, start + whole, last, rest)


@simd.device()
def _sum_of_squares(x: Any, start: int, width: int) -> Any:
    total = simd.splat(np.float32(0.0))
    whole = width - width % simd.LANES
    for i in range(0, whole, simd.LANES):
        part = simd.load(x, start + i)
        total = simd.fma(part, part, total)
    part = simd.load_first(x, start + whole, width - whole)
    return simd.sum_lanes(simd.fma(part, part, total))


@simd.device()
def _scale_row(out: Any, to: int, x: Any, start: int, scale: Any, weight: Any, width: int) -> None:
    factor = simd.splat(scale)
    whole = width - width % simd.LANES
    for i in range(0, whole, simd.LANES):
        part = simd.mul(simd.load(x, start + i), factor)
        simd.store(out, to + i, simd.mul(part, simd.load(weight, i)))
    rest = width - whole
    part = simd.mul(simd.load_first(x, start + whole, rest), factor)
    simd.store_first(out, to + whole, simd.mul(part, simd.load_first(weight, whole, rest)), rest)


@kernel(_Args)
def rms_norm_kernel(pointer: Any) -> None:
    a = unpack(pointer)
    out, x, weight, residual = floats(a.out), floats(a.x), floats(a.weight), floats(a.residual)
    begin, end = share(a.rows, np.int64(thread_index()), np.int64(thread_count()))
    for row in range(begin, end):
        token, head = row // a.heads, row % a.heads
        source, start = x, token * a.x_stride + head * a.x_head_stride
        if a.residual != 0:
            _add_row(residual, row * a.residual_stride, x, start, a.width)
            source, start = residual, row * a.residual_stride
        mean = _sum_of_squares(source, start, a.width) / np.float32(a.width)
        scale = np.float32(1.0) / np.sqrt(mean + np.float32(a.eps))
        to = token * a.out_stride + head * a.out_head_stride
        _scale_row(out, to, source, start, scale, weight, a.width)


def fits(out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor | None) -> bool:
    """Whether this kernel handles these tensors: float32 on the CPU, elements of a row side by side."""
    return (
        x.is_cpu
        and out.dtype is x.dtype is weight.dtype is torch.float32
        and out.stride(-1) == x.stride(-1) == 1
        and (residual is None or (x.dim() == 2 and residual.stride(-1) == 1))
    )


def rms_norm(
    out: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    residual: torch.Tensor | None = None,
) -> None:
    """See `stretto.kernels.rms_norm.rms_norm`."""
    rows, heads, width = x.shape[:-1].numel(), x.shape[1] if x.dim() == 3 else 1, x.shape[-1]
    rms_norm_kernel(
        threads_for(rows * width, GRAIN),
        out.data_ptr(),
        x.data_ptr(),
        weight.data_ptr(),
        0 if residual is None else residual.data_ptr(),
        rows,
        heads,
        width,
        out.stride(0),
        out.stride(-2),
        x.stride(0),
        x.stride(-2),
        0 if residual is None else residual.stride(0),
        eps,
    )
