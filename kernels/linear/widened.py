"""The matrix product of a linear layer on the CPU, over weights that are kept as steps.

For a few rows weights are widened in registers; for more, a slice of the inner index at a time, which stays
in the first cache while all rows pass by. Each output is one running sum over k in order, as in `cpu.py`: the
bits are those of a product over the same weights in float32.

Measured in turns with float16 weights on one core (Zen 5), microseconds at 1, 4, 8 and 256 rows of 576 x
3072: float16 110, 106, 133, 3660; 4 bits 52, 80, 135, 3770. The layers of SmolLM2-135M (Q4_1) on two cores
at 1, 4, 8 and 32 rows, milliseconds: 6.0, 6.9, 8.5, 24.3; 3.0, 4.3, 6.7, 23.0.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch

from stretto.kernels.linear.cpu import AHEAD, COLUMNS, PANELS, ROWS, deliver, runs_and_splits
from stretto.kernels.linear.gathering import Args as GatherArgs
from stretto.kernels.linear.gathering import entry, gather_rows
from stretto.kernels.linear.stepped import KERNELS, Packed, Stepped
from stretto.kernels.linear.stepped import pack as pack_columns
from stretto.kernels.pool import (
    Kernel,
    arguments,
    claim,
    floats,
    int32s,
    kernel,
    share,
    unpack,
)
from stretto.kernels.steps import LINE, make_step_tile, make_widen
from stretto.kernels.tile import make_tile

SLICE = 144
"""Inputs whose weights are widened at a time, or little more: 27 KiB. With twice as many, 64 rows take a
twentieth more time."""
BLOCK = 32 * ROWS
"""Rows that one widening serves."""

_few4h, _few4f, _few8h, _few8f = (
    make_step_tile(ROWS, PANELS, bits, table, AHEAD) for bits in (4, 8) for table in (2, 4)
)
_widen4h, _widen4f, _widen8h, _widen8f = (
    make_widen(PANELS, bits, table, AHEAD) for bits in (4, 8) for table in (2, 4)
)
_tile = make_tile(ROWS, PANELS, "float32", resume=True)

_Args = arguments(
    "out x weight bias rows depth width inner words steps block runs splits out_stride x_stride"
)


@functools.cache
def product(bits: int, table: int) -> Kernel:
    """The kernel for steps of so many bits, and scales of so many bytes. A unit of work is a run of column
    groups by a run of rows.
    """
    kind = 2 * (bits == 8) + (table == 4)

    def body(pointer: Any) -> None:
        a = unpack(pointer)
        out, x, bias = floats(a.out), floats(a.x), floats(a.bias)
        biased = a.bias != 0
        sums = np.empty(min(BLOCK, a.rows) * COLUMNS, np.float32)
        group, slices = a.words * a.steps, (a.depth + SLICE - 1) // SLICE
        longest = (a.inner + slices - 1) // slices * group
        widened = np.empty(max(longest, 2) * COLUMNS + LINE, np.float32)
        wide = (widened.ctypes.data + LINE - 1) // LINE * LINE
        groups, tiles = (a.width + COLUMNS - 1) // COLUMNS, (a.rows + ROWS - 1) // ROWS
        unit = claim(pointer)
        while unit < a.runs * a.splits:
            first_tile, last_tile = share(tiles, unit % a.splits, a.splits)
            last_row = min(last_tile * ROWS, a.rows)
            for column_group in range(*share(groups, unit // a.splits, a.runs)):
                first, weight = column_group * COLUMNS, a.weight + column_group * a.inner * a.block
                columns = min(COLUMNS, a.width - first)
                for top in range(first_tile * ROWS, last_row, BLOCK):
                    rows = min(BLOCK, last_row - top)
                    if rows <= ROWS:
                        tail = (a.inner, a.words, sums, wide, a.steps)
                        if kind == 0:
                            _few4h(rows, x, top * a.x_stride, a.x_stride, weight, *tail)
                        elif kind == 1:
                            _few4f(rows, x, top * a.x_stride, a.x_stride, weight, *tail)
                        elif kind == 2:
                            _few8h(rows, x, top * a.x_stride, a.x_stride, weight, *tail)
                        else:
                            _few8f(rows, x, top * a.x_stride, a.x_stride, weight, *tail)
                    else:
                        sums[: rows * COLUMNS] = 0
                        for piece in range(slices):
                            g, end = share(a.inner, piece, slices)
                            here, n = weight + g * a.block, end - g
                            if kind == 0:
                                _widen4h(here, n, a.words, wide)
                            elif kind == 1:
                                _widen4f(here, n, a.words, wide)
                            elif kind == 2:
                                _widen8h(here, n, a.words, wide)
                            else:
                                _widen8f(here, n, a.words, wide)
                            for row in range(0, rows, ROWS):
                                at, to = (top + row) * a.x_stride + g * group, sums[row * COLUMNS :]
                                now = min(ROWS, rows - row)
                                _tile(now, x, at, a.x_stride, wide, n * group, to, wide, 0)
                    for r in range(rows):
                        to = (top + r) * a.out_stride + first
                        deliver(out, to, sums, r, biased, bias, first, columns)
            unit = claim(pointer)

    return kernel(_Args)(body)


@functools.cache
def gather(bits: int, table: int) -> Kernel:
    """The kernel of `rows`. A unit of work is a row."""
    per_word, mask = 32 // bits, 2**bits - 1

    def body(pointer: Any) -> None:
        a = unpack(pointer)
        rows_of_words = (a.block // COLUMNS - 2 * table) // 4
        out, index = floats(a.out), int32s(a.index)
        row = claim(pointer)
        while row < a.rows:
            n = np.int64(index[row])
            block, column = a.blocks + n // COLUMNS * a.inner * a.block, n % COLUMNS
            at = row * a.depth
            for _ in range(a.inner):
                scale, minimum = entry(block, column, table), entry(block, COLUMNS + column, table)
                words = int32s(block + 2 * table * COLUMNS)
                for word in range(rows_of_words):
                    stored = words[word * COLUMNS + column]
                    for j in range(per_word):
                        out[at] = scale * np.float32(stored >> bits * j & mask) + minimum
                        at += 1
                block += a.block
            row = claim(pointer)

    return kernel(GatherArgs)(body)


def pack(matrix: Stepped) -> Packed:
    """For these kernels."""
    return pack_columns(matrix, COLUMNS)


def kernels(name: str) -> dict[str, Kernel]:
    """What `multiply` and `rows` call for a format whose kernels have that name."""
    sizes = KERNELS[name]
    return {f"linear {name}": product(*sizes), f"rows of {name}": gather(*sizes)}


def rows(packed: Packed, index: torch.Tensor) -> torch.Tensor:
    """Rows of the matrix as float32 [n, K]; index: integers [n], each in [0, N)."""
    return gather_rows(gather(packed.format.bits, packed.format.table.itemsize), packed, index)


def multiply(out: torch.Tensor, x: torch.Tensor, packed: Packed, bias: torch.Tensor | None) -> None:
    """out [T, N] = x [T, K] times packed steps, plus bias [N]; float32, elements of a row side by side."""
    threads = torch.get_num_threads()
    tiles = -(-len(x) // ROWS)
    groups, inner, block = packed.blocks.shape
    product(packed.format.bits, packed.format.table.itemsize)(
        threads,
        out.data_ptr(),
        x.data_ptr(),
        packed.blocks.data_ptr(),
        0 if bias is None else bias.data_ptr(),
        len(x),
        packed.depth,
        packed.width,
        inner,
        packed.format.group * packed.format.bits // 32,
        32 // packed.format.bits,
        block,
        *runs_and_splits(groups, tiles, threads),
        out.stride(0),
        x.stride(0),
    )
