"""The matrix product of a linear layer on the CPU, over weights of 8 or 4 bits.

Each row of activations is rounded to 8 bits, with a scale of its own for every group of inputs
(`activations.py`), and multiplied in integers (`dot.py`): the bits of a row depend on neither the other rows
nor their number.

A few rows are one tile, which reads the weights once from memory. Of more rows, `LENGTH` inputs at a time are
multiplied with all tiles, while the second cache is asked for what follows; of 4 bits, each weight has been
given a byte before.

Measured in turns with float16 weights on one core (Zen 5), microseconds at 1, 8, 32 and 512 rows of 576 x
3072: float16 81, 132, 512, 7350; 8 bits 39, 45, 141, 2090; 4 bits 22, 51, 177, 2490. That is 0.87 and 0.73
10 ** 12 operations a second at 512 rows, where the core's peak is 1.1. The same core restricted to AVX2, at 1
and 32 rows: float16 105, 910; 8 bits 38, 700; 4 bits 42, 780.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch

from stretto.kernels import simd
from stretto.kernels.buffers import Buffers
from stretto.kernels.dot import block_bytes, head_bytes, make_dot, make_unpack, row_bytes
from stretto.kernels.linear.activations import make_round
from stretto.kernels.linear.cpu import AHEAD, COLUMNS, PANELS, ROWS, deliver, runs_and_splits
from stretto.kernels.linear.gathering import Args as GatherArgs
from stretto.kernels.linear.gathering import entry, gather_rows
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
    unpack,
)

ALONE = 2 * ROWS
"""Up to so many rows each thread rounds for itself; more are shared out, at the price of a barrier."""

TILE = 4 if PANELS > 1 else ROWS
"""Rows of a tile, where there are several: of 4 x 3 vectors both the sums of a group and the totals stay in
the registers of AVX-512. 576 x 3072 of 8 bits, one core, at 32 and 512 rows: 8 x 3 vectors 160 and 2190 us,
4 x 3 140 and 2070."""

LENGTH = 576
"""Inputs whose weights are multiplied with all tiles before the next: 28 KB, for the first cache. 1536 x 576
of 8 bits, one core, at 512 rows: all inputs 1200 us, 576 1140."""


_Args = arguments(
    "out x weight bias rounded unpacked rows depth width tile runs splits out_stride x_stride row_bytes"
)
_INT8, _INT4 = FORMATS["int8"], FORMATS["int4"]
_WIDE = block_bytes(COLUMNS, _INT4.bits, _INT4.group, unpacked=True)
_round8, _round4 = make_round(_INT8.bits, _INT8.group), make_round(_INT4.bits, _INT4.group)
_one8 = make_dot(ROWS, PANELS, _INT8.bits, _INT8.group, AHEAD)
_one4 = make_dot(ROWS, PANELS, _INT4.bits, _INT4.group, AHEAD)
_many8 = make_dot(TILE, PANELS, _INT8.bits, _INT8.group)
_many4 = make_dot(TILE, PANELS, _INT4.bits, _INT4.group, unpacked=True)
_unpack = make_unpack(PANELS, _INT4.group, AHEAD)


@simd.device()
def _row_range(rows: int, splits: int, tile: int, unit: int) -> tuple[int, int]:
    """Half-open, whole tiles: the part of the rows that a unit of work has."""
    first, last = share((rows + tile - 1) // tile, unit % splits, splits)
    return first * tile, min(last * tile, rows)


@functools.cache
def product(fmt: Format) -> Kernel:
    """The kernel for one format. A unit of work is a run of column groups by a run of rows.

    The dots are globals, for numba finds no kernel again that has such a thing in its closure.
    """
    bits, group = fmt.bits, fmt.group
    block, size = block_bytes(COLUMNS, bits, group), row_bytes(group)

    def body(pointer: Any) -> None:
        a = unpack(pointer)
        out, x, bias = floats(a.out), floats(a.x), floats(a.bias)
        mine, others = thread_index(), thread_count()
        rounded, alone, many = a.rounded, a.rows <= ALONE, a.rows > a.tile
        if alone:
            rounded += a.rows * a.row_bytes * mine
        for row in range(*share(a.rows, 0 if alone else mine, 1 if alone else others)):
            if bits == 8:
                _round8(x, row * a.x_stride, a.depth, rounded + row * a.row_bytes)
            else:
                _round4(x, row * a.x_stride, a.depth, rounded + row * a.row_bytes)
        if not alone:
            meet(pointer, others)
        inner, groups = (a.depth + group - 1) // group, (a.width + COLUMNS - 1) // COLUMNS
        unpacked, scratch = a.unpacked + mine * inner * _WIDE, np.empty(ROWS * COLUMNS, np.float32)
        unit = claim(pointer)
        while unit < a.runs * a.splits:
            first_row, last_row = _row_range(a.rows, a.splits, a.tile, unit)
            for g in range(*share(groups, unit // a.splits, a.runs)):
                first = g * COLUMNS
                columns = min(COLUMNS, a.width - first)
                straight = columns == COLUMNS and a.bias == 0
                most = LENGTH // group if straight else inner
                for begin in range(0, inner, most):
                    count, weights = min(most, inner - begin), a.weight + (g * inner + begin) * block
                    following = weights + count * block
                    hint, end = following, following + count * block
                    if bits == 4 and many:
                        _unpack(weights, count, unpacked)
                    for row in range(first_row, last_row, a.tile):
                        rows, at = min(a.tile, a.rows - row), rounded + row * a.row_bytes + begin * size
                        to, stride = scratch.ctypes.data, 4 * COLUMNS
                        if straight:
                            to, stride = a.out + 4 * (row * a.out_stride + first), 4 * a.out_stride
                        where = (begin > 0, to, stride, hint)
                        if bits == 8:
                            if many:
                                _many8(rows, at, a.row_bytes, weights, count, *where)
                            else:
                                _one8(rows, at, a.row_bytes, weights, count, *where)
                        elif many:
                            _many4(rows, at, a.row_bytes, unpacked, count, *where)
                        else:
                            _one4(rows, at, a.row_bytes, weights, count, *where)
                        hint = hint + 16 * count * group if hint < end else following
                        if not straight:
                            for r in range(rows):
                                place = (row + r) * a.out_stride + first
                                deliver(out, place, scratch, r, a.bias != 0, bias, first, columns)
            unit = claim(pointer)

    return kernel(_Args)(body)


@functools.cache
def gather(fmt: Format) -> Kernel:
    """The kernel of `rows` for one format. A unit of work is a row."""
    bits, group = fmt.bits, fmt.group
    head = head_bytes(COLUMNS, bits)

    def body(pointer: Any) -> None:
        a = unpack(pointer)
        out, index = floats(a.out), int32s(a.index)
        row = claim(pointer)
        while row < a.rows:
            n = np.int64(index[row])
            block, column = a.blocks + n // COLUMNS * a.inner * a.block, n % COLUMNS
            for first in range(0, a.depth, group):
                scale, words = entry(block, column, 2), int32s(block + head)
                minimum = entry(block, COLUMNS + column, 2) if bits == 4 else np.float32(0)
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

    return kernel(GatherArgs)(body)


def rows(packed: Packed, index: torch.Tensor) -> torch.Tensor:
    """See `quantized.rows`."""
    return gather_rows(gather(packed.format), packed, index)


_buffers = Buffers()


def multiply(out: torch.Tensor, x: torch.Tensor, packed: Packed, bias: torch.Tensor | None) -> None:
    """out [T, N] = x [T, K] times quantized weights, plus bias [N]; float32, a row's elements in order."""
    threads = torch.get_num_threads()
    rows, depth = x.shape
    groups, inner = packed.blocks.shape[:2]
    tile = TILE if rows > ROWS else ROWS
    tiles, stride = -(-rows // tile), inner * row_bytes(packed.format.group)
    rounded = rows * stride * (threads if rows <= ALONE else 1)
    unpacked = threads * inner * _WIDE if packed.format is _INT4 else 0
    buffer = _buffers.least(rounded + unpacked).data_ptr()
    product(packed.format)(
        threads,
        out.data_ptr(),
        x.data_ptr(),
        packed.blocks.data_ptr(),
        0 if bias is None else bias.data_ptr(),
        buffer,
        buffer + rounded,
        rows,
        depth,
        packed.width,
        tile,
        *runs_and_splits(groups, tiles, threads),
        out.stride(0),
        x.stride(0),
        stride,
    )
