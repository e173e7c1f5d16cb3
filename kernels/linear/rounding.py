"""Weights to 8 or 4 bits on the CPU: `quantized.pack`, bit for bit, at the speed of memory.

A server quantizes at every start, so it must not take long. Measured on two cores (Zen 5), 49,152 x 576 from
float16, in times of the reference: 8 bits 0.26, 4 bits 0.42.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from stretto.kernels import simd
from stretto.kernels.dot import block_bytes
from stretto.kernels.linear.cpu import COLUMNS
from stretto.kernels.linear.quantized import AT_ONCE, Format, Packed
from stretto.kernels.llvm import F32
from stretto.kernels.pool import Kernel, arguments, claim, floats, int32s, kernel, unpack

_Args = arguments("blocks weight width depth inner block")
_ZERO, _ONE, _EVEN = np.float32(0), np.float32(1), np.float32(3 << 22)


@intrinsic
def _store_half(typing: Any, address: Any, value: Any) -> Any:
    """Store a float32 as a float16; returns what that is."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        half = builder.fptrunc(values[1], ir.HalfType())
        builder.store(half, builder.inttoptr(values[0], ir.HalfType().as_pointer()))
        return builder.fpext(half, F32)

    return types.float32(types.int64, types.float32), generate


@simd.device()
def _nearest(x: Any) -> Any:
    """x, of a magnitude below 2 ** 22, rounded to an integer, halves to the even one."""
    return x + _EVEN - _EVEN


@simd.device()
def _scale(address: int, span: Any, steps: Any) -> Any:
    """Store and return the scale with which so many steps make the span; 1 where the span is nothing."""
    scale = _store_half(address, span / steps)
    return scale if scale != _ZERO else _store_half(address, _ONE)


@simd.device()
def _extremes(weight: Any, start: int, count: int, group: int) -> Any:
    """The smallest and the largest of `count` weights and of the zeros that fill up the group."""
    low = high = weight[start] if count else _ZERO
    for k in range(start, start + count):
        low, high = min(low, weight[k]), max(high, weight[k])
    return (low, high) if count == group else (min(low, _ZERO), max(high, _ZERO))


@functools.cache
def rounding(fmt: Format) -> Kernel:
    """The kernel for one format. A unit of work is the outputs that share blocks."""
    bits, group = fmt.bits, fmt.group
    head = block_bytes(COLUMNS, bits, group) - COLUMNS * group * bits // 8
    levels, words = np.float32(127 if bits == 8 else 15), group * bits // 32

    def body(pointer: Any) -> None:
        a = unpack(pointer)
        weight = floats(a.weight)
        wide = claim(pointer)
        while wide * COLUMNS < a.width:
            for column in range(COLUMNS):
                output = wide * COLUMNS + column
                depth = a.depth if output < a.width else 0
                for g in range(a.inner):
                    block = a.blocks + (wide * a.inner + g) * a.block
                    stored, first = int32s(block + head), output * a.depth + g * group
                    count = max(0, min(group, depth - g * group))
                    low, high = _extremes(weight, first, count, group)
                    if bits == 8:
                        zero, offset = _ZERO, np.int32(128)
                        scale = _scale(block + 2 * column, max(high, -low), levels)
                    else:
                        zero, offset = _store_half(block + 2 * (COLUMNS + column), low), np.int32(0)
                        scale = _scale(block + 2 * column, high - zero, levels)
                    for word in range(words):
                        quad = np.int32(0)
                        for i in range(32 // bits):
                            k = word * (32 // bits) + i
                            x = weight[first + k] if k < count else _ZERO
                            step = _nearest((x - zero) / scale)
                            step = max(min(step, levels), -levels if bits == 8 else _ZERO)
                            quad |= (np.int32(step) + offset) << (8 * (i % 4) + 4 * (i // 4))
                        stored[word * COLUMNS + column] = quad
            wide = claim(pointer)

    return kernel(_Args)(body)


def pack(weight: torch.Tensor, fmt: Format) -> Packed:
    """See `quantized.pack`; for the columns that the kernels of products want."""
    width, depth = weight.shape
    inner, wide = -(-depth // fmt.group), -(-width // COLUMNS)
    blocks = torch.empty(wide, inner, block_bytes(COLUMNS, fmt.bits, fmt.group), dtype=torch.uint8)
    some = max(1, AT_ONCE // COLUMNS)
    for first in range(0, wide, some):
        part = weight[first * COLUMNS : (first + some) * COLUMNS].float().contiguous()
        rounding(fmt)(
            torch.get_num_threads(),
            blocks[first].data_ptr(),
            part.data_ptr(),
            len(part),
            depth,
            inner,
            blocks.shape[2],
        )
    return Packed(blocks, fmt, width, depth, COLUMNS)
