"""LLVM building blocks that the vector intrinsics share: sixteen lanes of float32, int32 or int64."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
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
    first cache, 2 for the second.
    """
    pointer, hints = builder.bitcast(pointer, ir.IntType(8).as_pointer()), [I32(0), I32(locality), I32(1)]
    call(builder, "llvm.prefetch.p0", ir.VoidType(), [pointer, *hints])


def place(context: Any, builder: Any, array_type: Any, array: Any, index: Any, kind: Any = FLOATS) -> Any:
    """Pointer to array[index], as a pointer to a vector of that kind."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), kind.as_pointer())


def below(builder: Any, count: Any) -> Any:
    """Mask of the lanes whose number is under `count` (int64)."""
    numbers = ir.Constant(WORDS, list(range(LANES)))
    return builder.icmp_signed("<", numbers, splat(builder, builder.trunc(count, I32), WORDS))


def interleave(builder: Any, a: Any, b: Any) -> list[Any]:
    """a[0], b[0], a[1], b[1] ...: its first and its second half."""
    first = [lane // 2 + LANES * (lane % 2) for lane in range(LANES)]
    halves = (first, [lane + LANES // 2 for lane in first])
    return [builder.shuffle_vector(a, b, ir.Constant(WORDS, half)) for half in halves]


def transpose(builder: Any, rows: list[Any]) -> list[Any]:
    """Sixteen vectors as a matrix, turned: each round moves one bit of the row's number into the lane's."""
    for _ in range(4):
        rows = [half for i in range(8) for half in interleave(builder, rows[i], rows[i + 8])]
    return rows
