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
_BYTE, _HALVES = ir.IntType(8), ir.VectorType(ir.HalfType(), LANES)
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
        self._head = head_bytes(panels * LANES, bits)

    def table(self, which: int) -> list[Any]:
        """Scales (0) or minima (1) of all panels, as float32."""
        place = self._builder.add(self._address, I64(2 * LANES * self.panels * which))
        return [
            self._builder.fpext(stored, FLOATS)
            for stored in _load(self._builder, place, self.panels, _HALVES, 2 * LANES)
        ]

    def ask_for_tables(self, ahead: int) -> None:
        """Ask for scales and minima in advance."""
        self._ask(self._address, self._head, ahead)

    def _ask(self, address: Any, size: int, ahead: int) -> None:
        """Ask for the lines that lie `ahead` bytes behind an address; they are read once."""
        for line in range(ahead, ahead + size, LINE):
            llvm.prefetch(self._builder, _pointer(self._builder, address, line), locality=0)

    def words(self, k: Any, ahead: int | None) -> list[Any]:
        """The k-th vector of each panel; those `ahead` bytes behind are asked for."""
        size = 4 * LANES * self.panels
        row = self._builder.add(self._address, I64(self._head))
        row = self._builder.add(row, self._builder.mul(k, I64(size)))
        if ahead is not None:
            self._ask(row, size, ahead)
        return _load(self._builder, row, self.panels)


def _pointer(builder: Any, address: Any, offset: int, kind: Any = _BYTE) -> Any:
    """To a value of that kind, `offset` bytes behind an address."""
    return builder.inttoptr(builder.add(address, I64(offset)), kind.as_pointer())


def _load(builder: Any, address: Any, count: int, kind: Any = WORDS, size: int = 4 * LANES) -> list[Any]:
    """The vectors, of `size` bytes each, that lie at an address."""
    return [builder.load(_pointer(builder, address, size * i, kind), align=2) for i in range(count)]


def _store(builder: Any, vectors: list[Any], address: Any) -> None:
    for i, vector in enumerate(vectors):
        builder.store(vector, _pointer(builder, address, 4 * LANES * i, vector.type), align=2)


def head_bytes(columns: int, bits: int) -> int:
    """Bytes of the scales and minima of one group of the inner index by `columns` outputs."""
    return columns * (2 if bits == 8 else 4)


def block_bytes(columns: int, bits: int, group: int, unpacked: bool = False) -> int:
    """Bytes of the weights of one group of the inner index by `columns` outputs."""
    return head_bytes(columns, bits) + columns * group * (8 if unpacked else bits) // 8


def row_bytes(group: int) -> int:
    """Bytes of what a row has of one group of the inner index."""
    return group + 8


class _Rows:
    """What one group of the inner index has of some rows: bytes, scales, factors of the weights' offsets."""

    def __init__(self, builder: Any, starts: list[Any], g: Any, group: int, bits: int) -> None:
        here = builder.mul(g, I64(row_bytes(group)))
        self.bytes = [builder.add(start, here) for start in starts]
        self.scales = [_scalar(builder, builder.add(at, I64(group)), F32) for at in self.bytes]
        kind = I32 if bits == 8 else F32
        self.factors = [_scalar(builder, builder.add(at, I64(group + 4)), kind) for at in self.bytes]


Layers = Callable[[Any], list[list[Any]]]
"""From a number to bytes of weights: a layer, panel by panel, for each four of the inner index."""


def _layers(builder: Any, block: _Block, ahead: int | None, nibbles: bool) -> Layers:
    """Those of a block; of nibbles two at a time."""

    def at(k: Any) -> list[list[Any]]:
        stored = block.words(k, ahead)
        if not nibbles:
            return [stored]
        return [list(layer) for layer in zip(*(_nibbles(builder, word) for word in stored), strict=True)]

    return at


def _hinted(builder: Any, layers: Layers, line: Any) -> Layers:
    """The same layers; with each step the second cache is asked for a line more."""

    def at(k: Any) -> list[list[Any]]:
        address = builder.add(line, builder.mul(k, I64(LINE)))
        llvm.prefetch(builder, _pointer(builder, address, 0), locality=2)
        return layers(k)

    return at


def _dot_group(builder: Any, rows: _Rows, block: _Block, layers: Layers, steps: int, dot4: Dot4) -> list[Any]:
    """int32 sums of the group's products, of each row and panel; of 8 bits, with 128 taken off."""

    def step(k: Any, dots: list[Any]) -> list[Any]:
        found = layers(k)
        for part, layer in enumerate(found):
            at = builder.add(builder.mul(k, I64(4 * len(found))), I64(4 * part))
            factors = [_factor(builder, builder.add(start, at)) for start in rows.bytes]
            pairs = itertools.product(factors, layer)
            dots = [dot4(builder, dot, word, factor) for dot, (factor, word) in zip(dots, pairs, strict=True)]
        return dots

    offsets = rows.factors if block.bits == 8 else [llvm.constant(WORDS, 0) for _ in rows.factors]
    begin = [offset for offset in offsets for _ in range(block.panels)]
    return accumulate(builder, I64(steps), begin, step)


def _scale_group(builder: Any, rows: _Rows, block: _Block, dots: list[Any]) -> list[Any]:
    """The group's products as float32, but for the rows' scales."""
    columns = block.table(0)
    floats = [builder.sitofp(dot, FLOATS) for dot in dots]
    parts = [builder.fmul(value, columns[i % block.panels]) for i, value in enumerate(floats)]
    if block.bits == 8:
        return parts
    offsets = itertools.product(rows.factors, block.table(1))
    return [_fma(builder, low, count, part) for part, (count, low) in zip(parts, offsets, strict=True)]


def make_dot(
    most: int,
    panels: int,
    bits: int,
    group: int,
    ahead: int | None = None,
    unpacked: bool = False,
    way: str = best_way,
) -> Any:
    """dot(rows, x, stride, weights, groups, onto, out, out_stride, hint): of up to `most` rows, out = x @
    weights; if `onto`, out += x @ weights.

    x: address of row 0, rows `stride` bytes apart. For each group, a row is `group` signed bytes, a float32
    scale, and, for weights of 8 bits, -128 times the sum of its bytes, int32, for weights of 4, the sum,
    float32. weights: address of `groups` blocks (`_Block`), as stored or, of 4 bits, `unpacked`; in a block
    four neighbours of the inner index lie together, for each output. Of 8 bits, a weight is scale * (byte -
    128); of 4, scale * nibble + minimum. out: address of float32 rows of panels * 16, `out_stride` bytes
    apart.

    ahead: bytes by which weights are asked for in advance; if None, the second cache is asked for a line with
    every step, the first at `hint`.
    """
    nibbles = bits == 4 and not unpacked
    steps = group // (8 if nibbles else 4)
    size = I64(block_bytes(panels * LANES, bits, group, unpacked))

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        count, x, stride, weights, groups, onto, out, out_stride, hint = values

        def run(rows: int) -> None:
            starts = [builder.add(x, builder.mul(stride, I64(row))) for row in range(rows)]
            places = [builder.add(out, builder.mul(out_stride, I64(row))) for row in range(rows)]

            def one_group(g: Any, totals: list[Any]) -> list[Any]:
                block = _Block(builder, builder.add(weights, builder.mul(g, size)), panels, bits)
                layers = _layers(builder, block, ahead, nibbles)
                if ahead is None:
                    line = builder.add(hint, builder.mul(g, I64(LINE * steps)))
                    layers = _hinted(builder, layers, line)
                else:
                    block.ask_for_tables(ahead)
                part_rows = _Rows(builder, starts, g, group, bits)
                dots = _dot_group(builder, part_rows, block, layers, steps, WAYS[way])
                parts = _scale_group(builder, part_rows, block, dots)
                scales = [scale for scale in part_rows.scales for _ in range(panels)]
                return [_fma(builder, *each) for each in zip(parts, scales, totals, strict=True)]

            zero = llvm.constant(FLOATS, 0.0)
            before = [total for place in places for total in _load(builder, place, panels, FLOATS)]
            totals = [builder.select(onto, total, zero) for total in before]
            totals = accumulate(builder, groups, totals, one_group)
            for row, place in enumerate(places):
                _store(builder, totals[row * panels : (row + 1) * panels], place)

        for_each_count(builder, count, most, run)
        return context.get_dummy_value()

    @intrinsic
    def dot(
        typing: Any,
        rows: Any,
        x: Any,
        stride: Any,
        weights: Any,
        groups: Any,
        onto: Any,
        out: Any,
        out_stride: Any,
        hint: Any,
    ) -> Any:
        i64 = types.int64
        return types.none(i64, i64, i64, i64, i64, types.boolean, i64, i64, i64), generate

    return dot


def make_unpack(panels: int, group: int, ahead: int) -> Any:
    """unpack(weights, groups, out): blocks of 4 bits with a byte for each weight."""
    size, unpacked = (I64(block_bytes(panels * LANES, 4, group, wide)) for wide in (False, True))
    head, row = head_bytes(panels * LANES, 4), 4 * LANES * panels

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        weights, groups, out = values

        def one_group(g: Any, nothing: list[Any]) -> list[Any]:
            address = builder.add(weights, builder.mul(g, size))
            block, to = _Block(builder, address, panels, 4), builder.add(out, builder.mul(g, unpacked))
            block.ask_for_tables(ahead)
            _store(builder, _load(builder, address, panels), to)
            to = builder.add(to, I64(head))
            for k in range(group // 8):
                for layer in _layers(builder, block, ahead, nibbles=True)(I64(k)):
                    _store(builder, layer, to)
                    to = builder.add(to, I64(row))
            return nothing

        accumulate(builder, groups, [], one_group)
        return context.get_dummy_value()

    @intrinsic
    def unpack(typing: Any, weights: Any, groups: Any, out: Any) -> Any:
        return types.none(types.int64, types.int64, types.int64), generate

    return unpack


def _fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return llvm.call(builder, "llvm.fma.v16f32", FLOATS, [a, b, c])
