"""The inner loop of integer matrix products, as LLVM instructions: weights of 8 or 4 bits by rows of 8 bits.

Products are summed exactly in int32 within a group of the inner index, and groups are added in order in
float32: the bits of an output depend neither on the rows it is computed with nor on the instructions that the
CPU has for it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from stretto.kernels import llvm
from stretto.kernels.llvm import F32, FLOATS, I32, I64, LANES, WORDS
from stretto.kernels.tile import accumulate, for_each_count

_BYTES, _SHORTS = ir.VectorType(ir.IntType(8), 4 * LANES), ir.VectorType(ir.IntType(16), LANES)
_HALVES = ir.VectorType(ir.HalfType(), LANES)
_features = llvmlite.binding.get_host_cpu_features()


def _vnni(builder: Any, total: Any, weights: Any, factor: Any) -> Any:
    """One AVX-512 instruction."""
    operands = [total, builder.bitcast(weights, _BYTES), builder.bitcast(factor, _BYTES)]
    return llvm.call(builder, "llvm.x86.avx512.vpdpbusd.512", WORDS, operands)


def _halves(builder: Any, vector: Any) -> list[Any]:
    """The two registers of AVX2 that a vector is, as int16."""
    undefined = ir.Constant(WORDS, ir.Undefined)
    picks = [ir.Constant(ir.VectorType(I32, 8), list(range(at, at + 8))) for at in (0, 8)]
    return [builder.bitcast(builder.shuffle_vector(vector, undefined, pick), _SHORTS) for pick in picks]


def _pairs(builder: Any, total: Any, weights: Any, factor: Any) -> Any:
    """AVX2, even bytes and odd bytes as int16: nothing saturates, unlike in products of bytes."""
    eight, low = ir.Constant(_SHORTS, [8] * LANES), ir.Constant(_SHORTS, [255] * LANES)
    sums = []
    for w, x in zip(_halves(builder, weights), _halves(builder, factor), strict=True):
        even = builder.and_(w, low), builder.ashr(builder.shl(x, eight), eight)
        odd = builder.lshr(w, eight), builder.ashr(x, eight)
        kind = ir.VectorType(I32, 8)
        parts = [llvm.call(builder, "llvm.x86.avx2.pmadd.wd", kind, list(pair)) for pair in (even, odd)]
        sums.append(builder.add(*parts))
    both = builder.shuffle_vector(*sums, ir.Constant(WORDS, list(range(LANES))))
    return builder.add(total, both)


def _words(builder: Any, total: Any, weights: Any, factor: Any) -> Any:
    """Any CPU, a byte at a time."""
    for shift in (0, 8, 16, 24):
        left, right = llvm.constant(WORDS, 24 - shift), llvm.constant(WORDS, 24)
        w = builder.lshr(builder.shl(weights, left), right)
        x = builder.ashr(builder.shl(factor, left), right)
        total = builder.add(total, builder.mul(w, x))
    return total


Dot4 = Callable[[Any, Any, Any, Any], Any]
WAYS: dict[str, Dot4] = {"avx512vnni": _vnni, "avx2": _pairs, "": _words}
"""total + the four products of unsigned bytes of weights and signed bytes of a factor, in each of 16 int32
lanes; by the CPU's feature."""
best_way = next(name for name in WAYS if not name or _features.get(name))


def _factor(builder: Any, address: Any) -> Any:
    """The four bytes at an address, in every lane."""
    return llvm.splat(builder, builder.load(builder.inttoptr(address, I32.as_pointer()), align=4), WORDS)


def _scalar(builder: Any, address: Any, kind: Any) -> Any:
    """The number at an address, in every lane."""
    vector = FLOATS if kind is F32 else WORDS
    return llvm.splat(builder, builder.load(builder.inttoptr(address, kind.as_pointer()), align=4), vector)


def _nibbles(builder: Any, stored: Any) -> list[Any]:
    """Low and high half of each byte."""
    low = llvm.constant(WORDS, 0x0F0F0F0F)
    return [builder.and_(stored, low), builder.and_(builder.lshr(stored, llvm.constant(WORDS, 4)), low)]


LINE = 64
"""Bytes of a cache line."""


class _Block:
    """The weights of one group of the inner index: scales, minima (4 bits), then bytes."""

    def __init__(self, builder: Any, address: Any, panels: int, bits: int) -> None:
        self._builder, self._address = builder, address
        self.panels, self.bits = panels, bits
        self._tables = 1 if bits == 8 else 2

    def table(self, which: int) -> list[Any]:
        """Scales (0) or minima (1) of all panels, as float32."""
        first = which * self.panels
        return [self._widen(first + panel) for panel in range(self.panels)]

    def _widen(self, index: int) -> Any:
        at = self._builder.add(self._address, I64(2 * LANES * index))
        stored = self._builder.load(self._builder.inttoptr(at, _HALVES.as_pointer()), align=2)
        return self._builder.fpext(stored, FLOATS)

    def ask_for_tables(self, ahead: int) -> None:
        """Ask for scales and minima in advance."""
        self._ask(self._address, 2 * LANES * self.panels * self._tables, ahead)

    def _ask(self, address: Any, size: int, ahead: int) -> None:
        """Ask for the lines that lie `ahead` bytes behind an address."""
        for line in range(ahead, ahead + size, LINE):
            hint = self._builder.add(address, I64(line))
            llvm.prefetch(self._builder, self._builder.inttoptr(hint, ir.IntType(8).as_pointer()))

    def words(self, k: Any, ahead: int) -> list[Any]:
        """The k-th vector of each panel."""
        builder, skip = self._builder, 2 * LANES * self.panels * self._tables
        row = builder.add(self._address, builder.mul(k, I64(4 * LANES * self.panels)))
        row = builder.add(row, I64(skip))
        self._ask(row, 4 * LANES * self.panels, ahead)
        places = [builder.add(row, I64(4 * LANES * panel)) for panel in range(self.panels)]
        return [builder.load(builder.inttoptr(at, WORDS.as_pointer()), align=4) for at in places]


def block_bytes(columns: int, bits: int, group: int) -> int:
    """Bytes of the weights of one group of the inner index by `columns` outputs."""
    return columns * (2 + group if bits == 8 else 4 + group // 2)


class _Rows:
    """What one group of the inner index has of some rows: bytes, scales, sums of bytes."""

    def __init__(self, builder: Any, starts: list[Any], g: Any, groups: Any, group: int) -> None:
        add, mul = builder.add, builder.mul
        scales_at = add(mul(groups, I64(group)), mul(g, I64(4)))
        sums_at = add(scales_at, mul(groups, I64(4)))
        self.bytes = [add(start, mul(g, I64(group))) for start in starts]
        self.scales = [_scalar(builder, add(start, scales_at), F32) for start in starts]
        self.sums = [_scalar(builder, add(start, sums_at), I32) for start in starts]


def _dot_group(builder: Any, rows: _Rows, block: _Block, group: int, ahead: int, dot4: Dot4) -> list[Any]:
    """int32 sums of the group's products, of each row and panel; of 8 bits, with 128 taken off."""
    bits, panels = block.bits, block.panels
    per_word = 32 // bits

    def step(k: Any, dots: list[Any]) -> list[Any]:
        stored = block.words(k, ahead)
        layers = [[word] for word in stored] if bits == 8 else [_nibbles(builder, word) for word in stored]
        for part in range(per_word // 4):
            at = builder.add(builder.mul(k, I64(per_word)), I64(4 * part))
            factors = [_factor(builder, builder.add(start, at)) for start in rows.bytes]
            pairs = itertools.product(factors, [layer[part] for layer in layers])
            dots = [dot4(builder, dot, word, factor) for dot, (factor, word) in zip(dots, pairs, strict=True)]
        return dots

    offset = llvm.constant(WORDS, -128 if bits == 8 else 0)
    begin = [builder.mul(total, offset) for total in rows.sums for _ in range(panels)]
    return accumulate(builder, I64(group // per_word), begin, step)


def _scale_group(builder: Any, rows: _Rows, block: _Block, dots: list[Any]) -> list[Any]:
    """The group's products as float32, but for the rows' scales."""
    columns = block.table(0)
    floats = [builder.sitofp(dot, FLOATS) for dot in dots]
    parts = [builder.fmul(value, columns[i % block.panels]) for i, value in enumerate(floats)]
    if block.bits == 8:
        return parts
    minima, counts = block.table(1), [builder.sitofp(total, FLOATS) for total in rows.sums]
    offsets = itertools.product(counts, minima)
    return [_fma(builder, low, count, part) for part, (count, low) in zip(parts, offsets, strict=True)]


def make_dot(most: int, panels: int, bits: int, group: int, ahead: int, way: str = best_way) -> Any:
    """dot(rows, x, stride, weights, groups, out): out = x @ weights for up to `most` rows.

    x: address of row 0, rows `stride` bytes apart; a row is groups * group signed bytes, a float32 scale for
    each group, and an int32 sum of the bytes of each group. weights: address of `groups` blocks (`_Block`);
    in a block four neighbours of the inner index lie together, for each output. Of 8 bits, a weight is
    scale * (byte - 128); of 4, scale * nibble + minimum. out: flat float32 array [rows, panels * 16].
    ahead: bytes by which weights are asked for in advance.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        count, x, stride, address, groups, out = values
        size = I64(block_bytes(panels * LANES, bits, group))

        def run(rows: int) -> None:
            starts = [builder.add(x, builder.mul(stride, I64(row))) for row in range(rows)]

            def one_group(g: Any, totals: list[Any]) -> list[Any]:
                block = _Block(builder, builder.add(address, builder.mul(g, size)), panels, bits)
                block.ask_for_tables(ahead)
                part_rows = _Rows(builder, starts, g, groups, group)
                dots = _dot_group(builder, part_rows, block, group, ahead, WAYS[way])
                parts = _scale_group(builder, part_rows, block, dots)
                scales = [scale for scale in part_rows.scales for _ in range(panels)]
                return [_fma(builder, *each) for each in zip(parts, scales, totals, strict=True)]

            zeros = [llvm.constant(FLOATS, 0.0)] * (rows * panels)
            for index, total in enumerate(accumulate(builder, groups, zeros, one_group)):
                place = llvm.place(context, builder, signature.args[5], out, I64(LANES * index))
                builder.store(total, place, align=4)

        for_each_count(builder, count, most, run)
        return context.get_dummy_value()

    @intrinsic
    def dot(typing: Any, rows: Any, x: Any, stride: Any, weights: Any, groups: Any, out: Any) -> Any:
        i64 = types.int64
        return types.none(i64, i64, i64, i64, i64, out), generate

    return dot


def _fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return llvm.call(builder, "llvm.fma.v16f32", FLOATS, [a, b, c])
