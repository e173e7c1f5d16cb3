"""Weights that are whole steps above a minimum, as LLVM instructions: widened, and multiplied.

Quantized files keep a weight as a step of 4 or 8 bits, with a scale and a minimum for every group of
consecutive inputs. Here they become float32, a vector at a time, on their way to products: exact ones, that
read a third of what float16 weights are.

A block holds one group of the inner index for `panels` vectors of outputs: their scales, their minima, then
rows of words, int32, each of `32 // bits` consecutive steps of an output, the first in the lowest bits.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from stretto.kernels import llvm
from stretto.kernels.fp16 import HALVES
from stretto.kernels.llvm import FLOATS, I64, LANES, WORDS
from stretto.kernels.tile import accumulate, for_each_count, multiply_add

LINE = 64
"""Bytes of a cache line, and of a vector."""
_TABLES = {2: HALVES, 4: FLOATS}
"""How sixteen scales are stored, by the bytes of one."""


class _Block:
    """The steps of one group, for all panels. What lies `ahead` bytes behind is asked for in advance."""

    def __init__(self, builder: Any, address: Any, panels: int, table: int, ahead: int) -> None:
        self._builder, self._address = builder, address
        self._panels, self._table, self._ahead = panels, table, ahead
        self._head = 2 * LANES * table * panels

    def _load(self, address: Any, skip: int, kind: Any, align: int) -> Any:
        at = self._builder.add(address, I64(skip))
        return self._builder.load(self._builder.inttoptr(at, kind.as_pointer()), align=align)

    def _ask(self, address: Any, skip: int) -> None:
        hint = self._builder.add(address, I64(self._ahead + skip))
        llvm.prefetch(self._builder, self._builder.inttoptr(hint, ir.IntType(8).as_pointer()), locality=0)

    def _table_of(self, index: int) -> Any:
        kind, size = _TABLES[self._table], self._table
        stored = self._load(self._address, LANES * size * index, kind, size)
        return stored if kind is FLOATS else self._builder.fpext(stored, FLOATS)

    def tables(self) -> list[Any]:
        """Scales of all panels, then minima, as float32."""
        for line in range(0, self._head, LINE):
            self._ask(self._address, line)
        return [self._table_of(index) for index in range(2 * self._panels)]

    def words(self, row: Any) -> list[Any]:
        """One row of words, a vector for each panel."""
        at = self._builder.add(self._address, self._builder.mul(row, I64(LINE * self._panels)))
        skips = [self._head + LINE * panel for panel in range(self._panels)]
        for skip in skips:
            self._ask(at, skip)
        return [self._load(at, skip, WORDS, 4) for skip in skips]


def _weight(builder: Any, stored: Any, bits: int, scale: Any, minimum: Any) -> Any:
    """What the lowest steps of stored words mean."""
    step = builder.sitofp(builder.and_(stored, llvm.constant(WORDS, 2**bits - 1)), FLOATS)
    return llvm.call(builder, "llvm.fma.v16f32", FLOATS, [scale, step, minimum])


def _blocks(
    builder: Any, address: Any, rows: Any, panels: int, table: int, ahead: int
) -> Callable[[Any], _Block]:
    """A function from the number of a group to its block, where blocks have so many rows of words."""
    size = builder.add(I64(2 * LANES * table * panels), builder.mul(rows, I64(LINE * panels)))

    def block(g: Any) -> _Block:
        return _Block(builder, builder.add(address, builder.mul(g, size)), panels, table, ahead)

    return block


def _vector_at(builder: Any, address: Any, index: Any) -> Any:
    """Pointer to the index-th vector behind an address."""
    place = builder.add(address, builder.mul(index, I64(LINE)))
    return builder.inttoptr(place, FLOATS.as_pointer())


def make_step_tile(most: int, panels: int, bits: int, table: int, ahead: int) -> Any:
    """tile(rows, x, start, stride, weights, groups, words, out, space, steps): out = x @ weights, up to
    `most` rows.

    x: flat float32 array; row r starts at start + r * stride. weights: address of `groups` blocks of `words`
    rows. out: flat float32 array [rows, panels * 16]. Each element is one sum in the order of the inner
    index. table: bytes of a scale or minimum. ahead: bytes by which weights are asked for in advance. space:
    address for the scales and minima of a group as float32, on a cache line. steps: 32 // bits.

    Eight rows by three panels fill the registers, so tables are read from memory at every step, and words are
    shifted in place. The compiler would rather lift these loads out of the loop, or unroll it, and put sums
    into memory instead; it is kept from that by the number of steps, which it does not know.
    """
    per_word = 32 // bits

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        count, x, start, stride, address, groups, words, out, space, steps = values
        data = context.make_array(signature.args[1])(context, builder, x).data
        block_of = _blocks(builder, address, words, panels, table, ahead)
        nothing = builder.sub(steps, I64(per_word))

        def columns(j: Any, stored: list[Any]) -> list[Any]:
            here = builder.add(space, builder.and_(j, nothing))
            places = [_vector_at(builder, here, I64(index)) for index in range(2 * panels)]
            tables = [builder.load(place, align=LINE) for place in places]
            parts = zip(stored, tables[:panels], tables[panels:], strict=True)
            return [_weight(builder, word, bits, scale, minimum) for word, scale, minimum in parts]

        def run(rows: int) -> None:
            places = [builder.add(start, builder.mul(stride, I64(row))) for row in range(rows)]
            pointers = [builder.gep(data, [place]) for place in places]

            def one_group(g: Any, sums: list[Any]) -> list[Any]:
                block = block_of(g)
                for index, vector in enumerate(block.tables()):
                    builder.store(vector, _vector_at(builder, space, I64(index)), align=LINE)

                def one_row(row: Any, sums: list[Any]) -> list[Any]:
                    first = builder.mul(builder.add(builder.mul(g, words), row), I64(per_word))

                    def one_step(j: Any, state: list[Any]) -> list[Any]:
                        sums, stored = state[:-panels], state[-panels:]
                        k = builder.add(first, j)
                        factors = [builder.gep(pointer, [k]) for pointer in pointers]
                        pairs = zip(itertools.product(factors, columns(j, stored)), sums, strict=True)
                        totals = [multiply_add(builder, *pair, total) for pair, total in pairs]
                        shift = llvm.constant(WORDS, bits)
                        return [*totals, *(builder.lshr(word, shift) for word in stored)]

                    return accumulate(builder, steps, [*sums, *block.words(row)], one_step)[:-panels]

                return accumulate(builder, words, sums, one_row)

            zeros = [llvm.constant(FLOATS, 0.0)] * (rows * panels)
            for index, total in enumerate(accumulate(builder, groups, zeros, one_group)):
                place = llvm.place(context, builder, signature.args[7], out, I64(LANES * index))
                builder.store(total, place, align=4)

        for_each_count(builder, count, most, run)
        return context.get_dummy_value()

    @intrinsic
    def tile(
        typing: Any,
        rows: Any,
        x: Any,
        start: Any,
        stride: Any,
        weights: Any,
        groups: Any,
        words: Any,
        out: Any,
        space: Any,
        steps: Any,
    ) -> Any:
        i64 = types.int64
        return types.none(i64, x, i64, i64, i64, i64, i64, out, i64, i64), generate

    return tile


def make_widen(panels: int, bits: int, table: int, ahead: int) -> Any:
    """widen(weights, groups, words, out): the weights of so many blocks as float32 at the address `out`,
    [groups * words * 32 // bits, panels * 16], which is on a cache line. The rest as in `make_step_tile`.
    """
    per_word = 32 // bits

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        address, groups, words, out = values
        block_of = _blocks(builder, address, words, panels, table, ahead)

        def one_group(g: Any, none: list[Any]) -> list[Any]:
            block = block_of(g)
            tables = block.tables()

            def one_row(row: Any, none: list[Any]) -> list[Any]:
                first = builder.mul(builder.add(builder.mul(g, words), row), I64(per_word * panels))
                for panel, word in enumerate(block.words(row)):
                    for j in range(per_word):
                        step = builder.lshr(word, llvm.constant(WORDS, bits * j))
                        weight = _weight(builder, step, bits, tables[panel], tables[panels + panel])
                        place = _vector_at(builder, out, builder.add(first, I64(panels * j + panel)))
                        builder.store(weight, place, align=LINE)
                return none

            return accumulate(builder, words, none, one_row)

        accumulate(builder, groups, [], one_group)
        return context.get_dummy_value()

    @intrinsic
    def widen(typing: Any, weights: Any, groups: Any, words: Any, out: Any) -> Any:
        i64 = types.int64
        return types.none(i64, i64, i64, i64), generate

    return widen
