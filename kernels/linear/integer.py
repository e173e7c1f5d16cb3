"""The matrix product of a linear layer on the CPU, over weights of 8 or 4 bits.

Each row of activations is rounded to 8 bits, with a scale of its own for every group of inputs, and
multiplied in integers (`dot.py`): the bits of a row depend on neither the other rows nor their number.

Measured in turns with float16 weights on one core (Zen 5), microseconds at 1, 8 and 256 rows of 576 x
3072: float16 107, 146, 3630; 8 bits 55, 59, 1240; 4 bits 44, 63, 1520. A step of SmolLM2-135M at 1, 8 and 32
rows, milliseconds: 9.0, 12.3, 47.6; 4.8, 7.1, 26.4; 4.1, 7.2, 28.3. The same core restricted to AVX2, 576 x
3072 at 1 and 32 rows: 169, 993; 98, 776; 66, 899.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from stretto.kernels import llvm, simd
from stretto.kernels.buffers import Buffers
from stretto.kernels.dot import block_bytes, make_dot
from stretto.kernels.linear.cpu import AHEAD, COLUMNS, PANELS, ROWS, deliver
from stretto.kernels.linear.quantized import FORMATS, Format, Packed
from stretto.kernels.pool import (
    Kernel,
    arguments,
    claim,
    floats,
    int32s,
    kernel,
    meet,
    share,
    thread_count,
    thread_index,
    threads_for,
    unpack,
)

ALONE = 2 * ROWS
"""Up to so many rows each thread rounds for itself; more are shared out, at the price of a barrier."""

GRAIN = 1 << 13
"""Numbers of rows under which one thread gathers them."""

_Args = arguments("out x weight bias rounded rows depth width runs splits out_stride x_stride row_bytes")
_FORMAT8, _FORMAT4 = FORMATS["int8"], FORMATS["int4"]
_dot8 = make_dot(ROWS, PANELS, _FORMAT8.bits, _FORMAT8.group, AHEAD)
_dot4 = make_dot(ROWS, PANELS, _FORMAT4.bits, _FORMAT4.group, AHEAD)
_F127 = np.float32(127)
_ZERO, _INF = np.float32(0), np.float32(np.inf)


@intrinsic
def _store_bytes(typing: Any, address: Any, vector: Any) -> Any:
    """Store each lane, a whole number in [-128, 127], as a byte."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        bytes_ = ir.VectorType(ir.IntType(8), llvm.LANES)
        words = builder.fptosi(values[1], llvm.WORDS)
        place = builder.inttoptr(values[0], bytes_.as_pointer())
        builder.store(builder.trunc(words, bytes_), place, align=1)
        return context.get_dummy_value()

    return types.none(types.int64, simd.lanes), generate


@simd.device()
def _part(x: Any, start: int, left: int) -> Any:
    """Sixteen activations, zeros where fewer are left."""
    return simd.load(x, start) if left >= simd.LANES else simd.load_first(x, start, max(left, 0))


@simd.device()
def _round_row(x: Any, start: int, depth: int, row: int, group: int) -> None:
    """Round x[start : start + depth] into the row at that address; `dot.py` says what a row is."""
    groups = (depth + group - 1) // group
    scales, sums = floats(row + groups * group), int32s(row + groups * (group + 4))
    for g in range(groups):
        first = g * group
        largest = simd.splat(_ZERO)
        for k in range(first, first + group, simd.LANES):
            part = _part(x, start + k, depth - k)
            largest = simd.maximum(largest, simd.maximum(part, simd.minus(part)))
        most = simd.max_lanes(largest)
        scales[g] = most / _F127
        inverse = simd.splat(_F127 / most if _ZERO < most < _INF else _ZERO)
        total = simd.splat(_ZERO)
        for k in range(first, first + group, simd.LANES):
            steps = simd.round_even(simd.mul(_part(x, start + k, depth - k), inverse))
            steps = steps if most < _INF else simd.splat(_ZERO)
            _store_bytes(row + k, steps)
            total = simd.add(total, steps)
        sums[g] = np.int32(simd.sum_lanes(total))


@functools.cache
def product(fmt: Format) -> Kernel:
    """The kernel for one format. A unit of work is a run of column groups by a run of rows.

    The dots are globals, for numba finds no kernel again that has such a thing in its closure.
    """
    bits, group, block = fmt.bits, fmt.group, block_bytes(COLUMNS, fmt.bits, fmt.group)

    def body(pointer: Any) -> None:
        a = unpack(pointer)
        out, x, bias = floats(a.out), floats(a.x), floats(a.bias)
        biased = a.bias != 0
        alone = a.rows <= ALONE
        rounded, mine, others = a.rounded, thread_index(), thread_count()
        first_row, last_row = share(a.rows, mine, others)
        if alone:
            rounded += a.rows * a.row_bytes * mine
            first_row, last_row = 0, a.rows
        for row in range(first_row, last_row):
            _round_row(x, row * a.x_stride, a.depth, rounded + row * a.row_bytes, group)
        if not alone:
            meet(pointer, others)
        scratch = np.empty(ROWS * COLUMNS, np.float32)
        inner = (a.depth + group - 1) // group
        groups, tiles = (a.width + COLUMNS - 1) // COLUMNS, (a.rows + ROWS - 1) // ROWS
        unit = claim(pointer)
        while unit < a.runs * a.splits:
            first_tile, last_tile = share(tiles, unit % a.splits, a.splits)
            for g in range(*share(groups, unit // a.splits, a.runs)):
                first = g * COLUMNS
                columns, weights = min(COLUMNS, a.width - first), a.weight + g * inner * block
                for row in range(first_tile * ROWS, min(last_tile * ROWS, a.rows), ROWS):
                    rows = min(ROWS, a.rows - row)
                    x_row = rounded + row * a.row_bytes
                    if bits == 8:
                        _dot8(rows, x_row, a.row_bytes, weights, inner, scratch)
                    else:
                        _dot4(rows, x_row, a.row_bytes, weights, inner, scratch)
                    for r in range(rows):
                        to = (row + r) * a.out_stride + first
                        deliver(out, to, scratch, r, biased, bias, first, columns)
            unit = claim(pointer)

    return kernel(_Args)(body)


@intrinsic
def _half(typing: Any, address: Any) -> Any:
    """The float16 at an address, as float32."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        place = builder.inttoptr(values[0], ir.HalfType().as_pointer())
        return builder.fpext(builder.load(place), llvm.F32)

    return types.float32(types.int64), generate


_RowsArgs = arguments("out blocks index rows depth inner block")


@functools.cache
def gather(fmt: Format) -> Kernel:
    """The kernel of `rows` for one format. A unit of work is a row."""
    bits, group = fmt.bits, fmt.group
    head = block_bytes(COLUMNS, bits, group) - COLUMNS * group * bits // 8

    def body(pointer: Any) -> None:
        a = unpack(pointer)
        out, index = floats(a.out), int32s(a.index)
        row = claim(pointer)
        while row < a.rows:
            n = np.int64(index[row])
            block, column = a.blocks + n // COLUMNS * a.inner * a.block, n % COLUMNS
            for first in range(0, a.depth, group):
                scale, words = _half(block + 2 * column), int32s(block + head)
                minimum = _half(block + 2 * (COLUMNS + column)) if bits == 4 else np.float32(0)
                for k in range(min(group, a.depth - first)):
                    if bits == 8:
                        step = words[k // 4 * COLUMNS + column] >> 8 * (k % 4) & 255
                        value = scale * (np.float32(step) - np.float32(128))
                    else:
                        step = words[k // 8 * COLUMNS + column] >> 8 * (k % 4) + (k & 4) & 15
                        value = scale * np.float32(step) + minimum
                    out[row * a.depth + first + k] = value
                block += a.block
            row = claim(pointer)

    return kernel(_RowsArgs)(body)


def rows(packed: Packed, index: torch.Tensor) -> torch.Tensor:
    """See `quantized.rows`."""
    index = index.int().contiguous()
    out = torch.empty(len(index), packed.depth)
    inner, block = packed.blocks.shape[1:]
    gather(packed.format)(
        threads_for(out.numel(), GRAIN),
        out.data_ptr(),
        packed.blocks.data_ptr(),
        index.data_ptr(),
        len(index),
        packed.depth,
        inner,
        block,
    )
    return out


_buffers = Buffers()


def multiply(out: torch.Tensor, x: torch.Tensor, packed: Packed, bias: torch.Tensor | None) -> None:
    """out [T, N] = x [T, K] times quantized weights, plus bias [N]; float32, a row's elements in order."""
    threads = torch.get_num_threads()
    rows, depth = x.shape
    groups, inner = packed.blocks.shape[:2]
    tiles = -(-rows // ROWS)
    row_bytes = -(-inner * (packed.format.group + 8) // 64) * 64
    rounded = _buffers.least(rows * row_bytes * (threads if rows <= ALONE else 1))
    product(packed.format)(
        threads,
        out.data_ptr(),
        x.data_ptr(),
        packed.blocks.data_ptr(),
        0 if bias is None else bias.data_ptr(),
        rounded.data_ptr(),
        rows,
        depth,
        packed.width,
        min(groups, 8 * threads),
        max(1, min(tiles, 8 * threads // groups)),
        out.stride(0),
        x.stride(0),
        row_bytes,
    )
