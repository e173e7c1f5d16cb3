"""LLVM building blocks that the vector intrinsics share: sixteen lanes of float32, int32 or int64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

LANES = 16
I32, I64, F32 = ir.IntType(32), ir.IntType(64), ir.FloatType()
FLOATS = ir.VectorType(F32, LANES)
WORDS = ir.VectorType(I32, LANES)
LONGS = ir.VectorType(I64, LANES)
MASK = ir.VectorType(ir.IntType(1), LANES)


def constant(kind: Any, value: float) -> Any:
    """The same number in every lane."""
    return ir.Constant(kind, [value] * LANES)


def splat(builder: Any, value: Any, kind: Any = FLOATS) -> Any:
    """The same value in every lane."""
    nothing = ir.Constant(kind, ir.Undefined)
    one = builder.insert_element(nothing, value, I32(0))
    return builder.shuffle_vector(one, nothing, constant(WORDS, 0))


def call(builder: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    """Call an LLVM intrinsic."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


def prefetch(builder: Any, pointer: Any, locality: int = 3) -> None:
    """Ask for the cache line at `pointer`, which may be no address of ours; to be read. locality: 3 for the
    first cache, 2 for the second, 0 for the first and no other: for what is read once, and would drive out
    what others need. Decodes of 8 rows gain a twentieth by that, and the roles between two steps a tenth.
    """
    pointer, hints = builder.bitcast(pointer, ir.IntType(8).as_pointer()), [I32(0), I32(locality), I32(1)]
    call(builder, "llvm.prefetch.p0", ir.VoidType(), [pointer, *hints])


def elements(context: Any, builder: Any, array_type: Any, array: Any, kind: Any = F32) -> Any:
    """Pointer to an array's first element; in place of an array there may be the address of such an element,
    an int64, which costs a compiler far less than an array that is handed from function to function.
    """
    if isinstance(array_type, types.Integer):
        return builder.inttoptr(array, kind.as_pointer())
    return context.make_array(array_type)(context, builder, array).data


def place(context: Any, builder: Any, array_type: Any, array: Any, index: Any, kind: Any = FLOATS) -> Any:
    """Pointer to array[index], as a pointer to a vector of that kind."""
    first = elements(context, builder, array_type, array)
    return builder.bitcast(builder.gep(first, [index]), kind.as_pointer())


def below(builder: Any, count: Any) -> Any:
    """Mask of the lanes whose number is under `count` (int64)."""
    numbers = ir.Constant(WORDS, list(range(LANES)))
    return builder.icmp_signed("<", numbers, splat(builder, builder.trunc(count, I32), WORDS))


def larger(builder: Any, a: Any, b: Any) -> Any:
    """The larger of each pair of floats, where neither is NaN."""
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def fold_rows(builder: Any, rows: list[Any], combine: Callable[[Any, Any, Any], Any]) -> Any:
    """Reduce up to 16 vectors, a power of two, to one number each: row i's in lane i, and again in others.

    By halves: lane i with lane i + 8, then i + 4, i + 2, i + 1; those of two rows at a time while there are
    two.
    """
    for width in (8, 4, 2, 1):
        sides = [[i for i in range(2 * LANES) if i & width == side] for side in (0, width)]
        pairs = list(zip(rows[0::2], rows[1::2], strict=True)) if len(rows) > 1 else [(rows[0], rows[0])]
        halves = [
            [builder.shuffle_vector(*pair, ir.Constant(WORDS, side)) for side in sides] for pair in pairs
        ]
        rows = [combine(builder, *half) for half in halves]
    return rows[0]


def interleave(builder: Any, a: Any, b: Any) -> list[Any]:
    """a[0], b[0], a[1], b[1] ...: its first and its second half."""
    first = [lane // 2 + LANES * (lane % 2) for lane in range(LANES)]
    halves = (first, [lane + LANES // 2 for lane in first])
    return [builder.shuffle_vector(a, b, ir.Constant(WORDS, half)) for half in halves]


_QUARTERS = range(0, LANES, 4)
_ROUNDS = (
    (1, [[q + i for q in _QUARTERS for i in picks] for picks in ((0, 16, 1, 17), (2, 18, 3, 19))]),
    (2, [[q + i for q in _QUARTERS for i in picks] for picks in ((0, 1, 16, 17), (2, 3, 18, 19))]),
    (4, [[q + i for q in range(first, 2 * LANES, 8) for i in range(4)] for first in (0, 4)]),
    (8, [[q + i for q in range(first, 2 * LANES, 8) for i in range(4)] for first in (0, 4)]),
)
"""Distances of the rows that a round of `transpose` mixes, and which of their lanes: single ones, then pairs,
within quarters, then quarters, as one instruction can without a table.
"""


def transpose(builder: Any, rows: list[Any]) -> list[Any]:
    """Sixteen vectors as a matrix, turned: each round moves one bit of the row's number into the lane's."""
    rows = list(rows)
    for distance, sides in _ROUNDS:
        for i in (i for i in range(LANES) if not i & distance):
            pair = rows[i], rows[i + distance]
            low, high = (builder.shuffle_vector(*pair, ir.Constant(WORDS, side)) for side in sides)
            rows[i], rows[i + distance] = low, high
    return [rows[i & 12 | (i & 1) << 1 | (i & 2) >> 1] for i in range(LANES)]
