"""Sixteen float32 lanes as a numba type.

LLVM may not reorder float additions, so a plain loop over a sum stays scalar, and a `fastmath` one is reordered as
the compiler likes. These vectors say the order outright: fast on AVX-512, split in two on AVX2, the same bits in
both as long as the machine has fused multiply-add, and the same bits whatever code surrounds them.

`load` and `store` take a flat contiguous float32 array and an element index, unaligned and unchecked.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

LANES = 16
_F32 = ir.FloatType()
_I32 = ir.IntType(32)
_VECTOR = ir.VectorType(_F32, LANES)
_INTS = ir.VectorType(_I32, LANES)
_MASK = ir.VectorType(ir.IntType(1), LANES)


class _Lanes(types.Type):
    """The numba type of a vector."""

    def __init__(self) -> None:
        super().__init__(name="float32x16")


lanes = _Lanes()
device = functools.partial(numba.njit, forceinline=True, error_model="numpy")
"""Decorator of functions that kernels call; always inlined, so that constant arguments stay constants."""


@register_model(_Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _VECTOR)


def _declare(builder: Any, name: str, result: Any, operands: list[Any]) -> Any:
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, operands), name)


def _element(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    """Pointer to array[index], as a pointer to a vector."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), _VECTOR.as_pointer())


def _splat(builder: Any, value: Any, kind: Any = _VECTOR) -> Any:
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, _I32(0))
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), ir.Constant(_INTS, [0] * LANES))


def _below(builder: Any, count: Any) -> Any:
    """Mask of the lanes whose number is under `count` (int64)."""
    numbers = ir.Constant(_INTS, list(range(LANES)))
    return builder.icmp_signed("<", numbers, _splat(builder, builder.trunc(count, _I32), _INTS))


@intrinsic
def splat(typing: Any, value: Any) -> Any:
    """All lanes the same float32."""
    return lanes(types.float32), lambda context, builder, signature, values: _splat(builder, values[0])


@intrinsic
def load(typing: Any, array: Any, index: Any) -> Any:
    """array[index : index + 16]"""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.load(_element(context, builder, signature.args[0], *values), align=4)

    return lanes(array, types.int64), generate


@intrinsic
def store(typing: Any, array: Any, index: Any, vector: Any) -> Any:
    """array[index : index + 16] = vector"""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        builder.store(values[2], _element(context, builder, signature.args[0], *values[:2]), align=4)
        return context.get_dummy_value()

    return types.none(array, types.int64, lanes), generate


@intrinsic
def load_first(typing: Any, array: Any, index: Any, count: Any) -> Any:
    """array[index : index + count], zeros in the other lanes; nothing past them is read."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        pointer = _element(context, builder, signature.args[0], *values[:2])
        name, operands = "llvm.masked.load.v16f32.p0", [pointer.type, _MASK, _VECTOR]
        function = _declare(builder, name, _VECTOR, operands)
        return builder.call(
            function, [pointer, _below(builder, values[2]), ir.Constant(_VECTOR, [0.0] * LANES)]
        )

    return lanes(array, types.int64, types.int64), generate


@intrinsic
def store_first(typing: Any, array: Any, index: Any, vector: Any, count: Any) -> Any:
    """array[index : index + count] = vector[:count]"""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        pointer = _element(context, builder, signature.args[0], *values[:2])
        name, operands = "llvm.masked.store.v16f32.p0", [_VECTOR, pointer.type, _MASK]
        function = _declare(builder, name, ir.VoidType(), operands)
        builder.call(function, [values[2], pointer, _below(builder, values[3])])
        return context.get_dummy_value()

    return types.none(array, types.int64, lanes, types.int64), generate


def _binary(operation: str) -> Callable[..., Any]:
    @intrinsic
    def apply(typing: Any, left: Any, right: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return getattr(builder, operation)(*values)

        return lanes(lanes, lanes), generate

    return apply  # type: ignore[no-any-return]


add = _binary("fadd")
sub = _binary("fsub")
mul = _binary("fmul")
div = _binary("fdiv")


def _library(name: str, arity: int) -> Callable[..., Any]:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        function = _declare(builder, f"llvm.{name}.v16f32", _VECTOR, [_VECTOR] * arity)
        return builder.call(function, values)

    return generate


@intrinsic
def fma(typing: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once."""
    return lanes(lanes, lanes, lanes), _library("fma", 3)


@intrinsic
def maximum(typing: Any, a: Any, b: Any) -> Any:
    """The larger of each pair of lanes; a NaN wins."""
    return lanes(lanes, lanes), _library("maximum", 2)


@intrinsic
def round_even(typing: Any, a: Any) -> Any:
    """Each lane rounded to an integer."""
    return lanes(lanes), _library("rint", 1)


@intrinsic
def floor(typing: Any, a: Any) -> Any:
    """The largest integer not above each lane."""
    return lanes(lanes), _library("floor", 1)


@intrinsic
def keep_first(typing: Any, vector: Any, count: Any, other: Any) -> Any:
    """vector in the first `count` lanes, `other` in the rest."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.select(_below(builder, values[1]), values[0], values[2])

    return lanes(lanes, types.int64, lanes), generate


@intrinsic
def where_less(typing: Any, a: Any, b: Any, this: Any, other: Any) -> Any:
    """`this` in the lanes where a < b, `other` elsewhere."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.select(builder.fcmp_ordered("<", values[0], values[1]), values[2], values[3])

    return lanes(lanes, lanes, lanes, lanes), generate


@intrinsic
def exponent(typing: Any, x: Any) -> Any:
    """Of a positive normal x = m * 2 ** e with m in [0.5, 1): e."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        bits = builder.lshr(builder.bitcast(values[0], _INTS), ir.Constant(_INTS, [23] * LANES))
        return builder.sitofp(builder.sub(bits, ir.Constant(_INTS, [126] * LANES)), _VECTOR)

    return lanes(lanes), generate


@intrinsic
def mantissa(typing: Any, x: Any) -> Any:
    """Of a positive normal x = m * 2 ** e with m in [0.5, 1): m."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        low = builder.and_(builder.bitcast(values[0], _INTS), ir.Constant(_INTS, [0x7FFFFF] * LANES))
        return builder.bitcast(builder.or_(low, ir.Constant(_INTS, [126 << 23] * LANES)), _VECTOR)

    return lanes(lanes), generate


@intrinsic
def power_of_two(typing: Any, exponent: Any) -> Any:
    """2 ** exponent for whole exponents in [-126, 127]."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        biased = builder.add(builder.fptosi(values[0], _INTS), ir.Constant(_INTS, [127] * LANES))
        return builder.bitcast(builder.shl(biased, ir.Constant(_INTS, [23] * LANES)), _VECTOR)

    return lanes(lanes), generate


def _fold(combine: Callable[[Any, Any, Any], Any]) -> Callable[..., Any]:
    """Reduce by halves: lane i with lane i + 8, then i + 4, i + 2, i + 1."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        vector = values[0]
        for width in (8, 4, 2, 1):
            picks = [(lane + width) % LANES for lane in range(LANES)]
            other = builder.shuffle_vector(
                vector, ir.Constant(_VECTOR, ir.Undefined), ir.Constant(_INTS, picks)
            )
            vector = combine(builder, vector, other)
        return builder.extract_element(vector, _I32(0))

    return generate


@intrinsic
def sum_lanes(typing: Any, vector: Any) -> Any:
    """The sum of all lanes, in a fixed order, float32."""
    return types.float32(lanes), _fold(lambda builder, a, b: builder.fadd(a, b))


@intrinsic
def max_lanes(typing: Any, vector: Any) -> Any:
    """The largest lane, float32; NaN if there is one."""

    def larger(builder: Any, a: Any, b: Any) -> Any:
        return builder.call(_declare(builder, "llvm.maximum.v16f32", _VECTOR, [_VECTOR] * 2), [a, b])

    return types.float32(lanes), _fold(larger)


@intrinsic
def first_lane(typing: Any, vector: Any) -> Any:
    """Lane 0, float32."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.extract_element(values[0], _I32(0))

    return types.float32(lanes), generate


@intrinsic
def load_columns(typing: Any, array: Any, rows: Any, column: Any, out: Any, at: Any) -> Any:
    """Transpose a 16 x 16 block: out[at + 16 * j + t] = array[rows[t] + column + j] for j, t in 0..15."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        array_type, rows_type, _, out_type, _ = signature.args
        offsets = context.make_array(rows_type)(context, builder, values[1]).data
        block = []
        for lane in range(LANES):
            start = builder.add(builder.load(builder.gep(offsets, [ir.IntType(64)(lane)])), values[2])
            block.append(builder.load(_element(context, builder, array_type, values[0], start), align=4))
        for index, vector in enumerate(_transpose(builder, block)):
            place = builder.add(values[4], ir.IntType(64)(LANES * index))
            builder.store(vector, _element(context, builder, out_type, values[3], place), align=4)
        return context.get_dummy_value()

    return types.none(array, rows, types.int64, out, types.int64), generate


def _transpose(builder: Any, rows: list[Any]) -> list[Any]:
    """Four rounds of interleaving row i with row i + 8: each moves one bit of the row number into the lane."""
    low = ir.Constant(_INTS, [lane // 2 + LANES * (lane % 2) for lane in range(LANES)])
    high = ir.Constant(_INTS, [lane // 2 + 8 + LANES * (lane % 2) for lane in range(LANES)])
    for _ in range(4):
        pairs = [(rows[index], rows[index + 8]) for index in range(8)]
        rows = [builder.shuffle_vector(a, b, half) for a, b in pairs for half in (low, high)]
    return rows


_LOG2_E = np.float32(1.44269504088896341)
_LN2_HIGH = np.float32(0.693359375)
_LN2_LOW = np.float32(-2.12194440e-4)
_LOWEST = np.float32(-87.3)
_HIGHEST = np.float32(88.0)
_C0, _C1, _C2, _C3, _C4, _C5 = (
    np.float32(value)
    for value in (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5)
)
_ONE = np.float32(1.0)


@device()
def exp(x: Any) -> Any:
    """e ** x within 2 units in the last place, clamped to x in [-87.3, 88]; the polynomial of Cephes' expf."""
    x = sub(splat(np.float32(0.0)), maximum(sub(splat(np.float32(0.0)), x), splat(-_HIGHEST)))
    x = maximum(x, splat(_LOWEST))
    n = round_even(mul(x, splat(_LOG2_E)))
    r = fma(n, splat(-_LN2_HIGH), x)
    r = fma(n, splat(-_LN2_LOW), r)
    p = fma(splat(_C0), r, splat(_C1))
    p = fma(p, r, splat(_C2))
    p = fma(p, r, splat(_C3))
    p = fma(p, r, splat(_C4))
    p = fma(p, r, splat(_C5))
    p = add(fma(p, mul(r, r), r), splat(_ONE))
    return mul(p, power_of_two(n))
