"""Sixteen float32 lanes as a numba type.

LLVM may not reorder float additions, so a plain loop over a sum stays scalar, and a `fastmath` one is
reordered as the compiler likes. These vectors say the order outright: fast on AVX-512, split in two on AVX2,
and the same bits on both, whatever code surrounds them.

`load` and `store` take a flat contiguous float32 array, or its address, and an element index, unaligned and
unchecked. Those that say so take smaller numbers as well: a uint16 array holds float16, a uint8 array fp8;
see `fp16.py` and `fp8.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, register_model

from stretto.kernels import fp8, fp16, llvm
from stretto.kernels.llvm import FLOATS, LANES, WORDS

device = functools.partial(
    numba.njit, forceinline=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True
)
"""Decorator of functions that kernels call; always inlined, so that constant arguments stay constants. Python
does not call them: to prepare for that would cost a third more time to compile.
"""


class _Lanes(types.Type):
    """The numba type of a vector."""

    def __init__(self) -> None:
        super().__init__(name="float32x16")


lanes = _Lanes()


class _Format(NamedTuple):
    """How an array holds numbers."""

    vector: Any
    """Of sixteen of its elements."""
    name: str
    """That vector's, in the names of LLVM's intrinsics."""
    widen: Callable[[Any, Any], Any]
    narrow: Callable[[Any, Any], Any]
    align: int
    """Bytes of one."""


def _as_is(builder: Any, vector: Any) -> Any:
    return vector


_FORMATS = {
    types.float32: _Format(FLOATS, "v16f32", _as_is, _as_is, 4),
    types.uint16: _Format(fp16.SHORTS, "v16i16", fp16.widen, fp16.narrow, 2),
    types.uint8: _Format(fp8.BYTES, "v16i8", fp8.widen, fp8.narrow, 1),
}


def read(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    """array[index : index + 16] as float32, for use in other intrinsics; float16 and fp8 too."""
    held = _FORMATS[array_type.dtype]
    pointer = llvm.place(context, builder, array_type, array, index, held.vector)
    return held.widen(builder, builder.load(pointer, align=held.align))


def read_first(context: Any, builder: Any, array_type: Any, array: Any, index: Any, count: Any) -> Any:
    """array[index : index + count] as float32, for use in other intrinsics; see `load_first`."""
    held, mask = _FORMATS[array_type.dtype], llvm.below(builder, count)
    pointer = llvm.place(context, builder, array_type, array, index, held.vector)
    operands = [pointer, mask, llvm.constant(held.vector, 0)]
    return held.widen(builder, llvm.call(builder, f"llvm.masked.load.{held.name}.p0", held.vector, operands))


@register_model(_Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, FLOATS)


@intrinsic
def splat(typing: Any, value: Any) -> Any:
    """All lanes the same float32."""
    return lanes(types.float32), lambda context, builder, signature, values: llvm.splat(builder, values[0])


@intrinsic
def spread(typing: Any, array: Any, index: Any) -> Any:
    """array[index] in all lanes; see `load`."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        first = llvm.elements(context, builder, signature.args[0], values[0])
        return llvm.splat(builder, builder.load(builder.gep(first, [values[1]])))

    return lanes(array, types.int64), generate


@intrinsic
def load(typing: Any, array: Any, index: Any) -> Any:
    """array[index : index + 16]"""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.load(llvm.place(context, builder, signature.args[0], *values), align=4)

    return lanes(array, types.int64), generate


@intrinsic
def store(typing: Any, array: Any, index: Any, vector: Any) -> Any:
    """array[index : index + 16] = vector"""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        builder.store(values[2], llvm.place(context, builder, signature.args[0], *values[:2]), align=4)
        return context.get_dummy_value()

    return types.none(array, types.int64, lanes), generate


@intrinsic
def load_first(typing: Any, array: Any, index: Any, count: Any) -> Any:
    """array[index : index + count], zeros in the other lanes; nothing past them is read. float16, fp8 too."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return read_first(context, builder, signature.args[0], *values)

    return lanes(array, types.int64, types.int64), generate


@intrinsic
def store_first(typing: Any, array: Any, index: Any, vector: Any, count: Any) -> Any:
    """array[index : index + count] = vector[:count]; in float16 and fp8 rounded and saturated."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        held = _FORMATS[signature.args[0].dtype]
        pointer = llvm.place(context, builder, signature.args[0], values[0], values[1], held.vector)
        operands = [held.narrow(builder, values[2]), pointer, llvm.below(builder, values[3])]
        llvm.call(builder, f"llvm.masked.store.{held.name}.p0", ir.VoidType(), operands)
        return context.get_dummy_value()

    return types.none(array, types.int64, lanes, types.int64), generate


@intrinsic
def load_columns(typing: Any, array: Any, rows: Any, column: Any, out: Any, at: Any, stride: Any) -> Any:
    """Turn a 16 x 16 block: out[at + stride * j + t] = array[rows[t] + column + j] for j, t in 0..15; the
    array float16 or fp8 too.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        array_type, rows_type, _, out_type, _, _ = signature.args
        offsets = llvm.elements(context, builder, rows_type, values[1], llvm.I64)
        block = []
        for lane in range(LANES):
            start = builder.add(builder.load(builder.gep(offsets, [llvm.I64(lane)])), values[2])
            block.append(read(context, builder, array_type, values[0], start))
        for index, vector in enumerate(llvm.transpose(builder, block)):
            to = builder.add(values[4], builder.mul(values[5], llvm.I64(index)))
            builder.store(vector, llvm.place(context, builder, out_type, values[3], to), align=4)
        return context.get_dummy_value()

    return types.none(array, rows, types.int64, out, types.int64, types.int64), generate


def _binary(operation: str) -> Callable[..., Any]:
    @intrinsic
    def apply(typing: Any, left: Any, right: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return getattr(builder, operation)(*values)

        return lanes(lanes, lanes), generate

    return apply


add = _binary("fadd")
sub = _binary("fsub")
mul = _binary("fmul")
div = _binary("fdiv")


def _library(name: str) -> Callable[..., Any]:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return llvm.call(builder, f"llvm.{name}.v16f32", FLOATS, list(values))

    return generate


@intrinsic
def fma(typing: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once."""
    return lanes(lanes, lanes, lanes), _library("fma")


@intrinsic
def maximum(typing: Any, a: Any, b: Any) -> Any:
    """The larger of each pair of lanes; a NaN wins."""
    return lanes(lanes, lanes), _library("maximum")


@intrinsic
def larger(typing: Any, a: Any, b: Any) -> Any:
    """The larger of each pair of lanes, where neither is NaN; one instruction where `maximum` takes some."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return llvm.larger(builder, *values)

    return lanes(lanes, lanes), generate


@intrinsic
def round_even(typing: Any, a: Any) -> Any:
    """Each lane rounded to an integer, halves to the even one."""
    return lanes(lanes), _library("rint")


@intrinsic
def floor(typing: Any, a: Any) -> Any:
    """The largest integer not above each lane."""
    return lanes(lanes), _library("floor")


@intrinsic
def keep_first(typing: Any, vector: Any, count: Any, other: Any) -> Any:
    """vector in the first `count` lanes, `other` in the rest."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.select(llvm.below(builder, values[1]), values[0], values[2])

    return lanes(lanes, types.int64, lanes), generate


@intrinsic
def keep_between(typing: Any, vector: Any, begin: Any, end: Any, other: Any) -> Any:
    """vector in the lanes [begin, end), `other` in the rest; begin and end may be past any lane."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        vector, begin, end, other = values
        kept = builder.and_(llvm.below(builder, end), builder.not_(llvm.below(builder, begin)))
        return builder.select(kept, vector, other)

    return lanes(lanes, types.int64, types.int64, lanes), generate


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
        bits = builder.lshr(builder.bitcast(values[0], WORDS), llvm.constant(WORDS, 23))
        return builder.sitofp(builder.sub(bits, llvm.constant(WORDS, 126)), FLOATS)

    return lanes(lanes), generate


@intrinsic
def mantissa(typing: Any, x: Any) -> Any:
    """Of a positive normal x = m * 2 ** e with m in [0.5, 1): m."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        low = builder.and_(builder.bitcast(values[0], WORDS), llvm.constant(WORDS, 0x7FFFFF))
        return builder.bitcast(builder.or_(low, llvm.constant(WORDS, 126 << 23)), FLOATS)

    return lanes(lanes), generate


@intrinsic
def low_bits_as_exponent(typing: Any, x: Any) -> Any:
    """The number whose sign and exponent are the nine lowest bits of x, and whose mantissa is that of 1."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        bits = builder.shl(builder.bitcast(values[0], WORDS), llvm.constant(WORDS, 23))
        return builder.bitcast(bits, FLOATS)

    return lanes(lanes), generate


@intrinsic
def power_of_two(typing: Any, exponent: Any) -> Any:
    """2 ** exponent for whole exponents in [-126, 127]."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        biased = builder.add(builder.fptosi(values[0], WORDS), llvm.constant(WORDS, 127))
        return builder.bitcast(builder.shl(biased, llvm.constant(WORDS, 23)), FLOATS)

    return lanes(lanes), generate


def _fold(combine: Callable[[Any, Any, Any], Any]) -> Callable[..., Any]:
    """Reduce by halves; see `llvm.fold_rows`."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.extract_element(llvm.fold_rows(builder, [values[0]], combine), llvm.I32(0))

    return generate


@intrinsic
def sum_lanes(typing: Any, vector: Any) -> Any:
    """The sum of all lanes, in a fixed order, float32."""
    return types.float32(lanes), _fold(lambda builder, a, b: builder.fadd(a, b))


@intrinsic
def max_lanes(typing: Any, vector: Any) -> Any:
    """The largest lane, float32; NaN if there is one."""
    larger = functools.partial(llvm.call, name="llvm.maximum.v16f32", result=FLOATS)
    return types.float32(lanes), _fold(lambda builder, a, b: larger(builder, arguments=[a, b]))


_LOG2_E, _LN2_HIGH, _LN2_LOW = (
    np.float32(1.44269504088896341),
    np.float32(0.693359375),
    np.float32(-2.12194440e-4),
)
_LOWEST, _HIGHEST = np.float32(-87.3), np.float32(88.0)
_ZERO, _HALF, _ONE = np.float32(0.0), np.float32(0.5), np.float32(1.0)
_C0, _C1, _C2, _C3, _C4 = (
    np.float32(c)
    for c in (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1)
)


@device()
def minus(x: Any) -> Any:
    """0 - x"""
    return sub(splat(_ZERO), x)


@device()
def exp(x: Any) -> Any:
    """e ** x within 2 units in the last place; x clamped to [-87.3, 88]; the polynomial of Cephes' expf."""
    x = maximum(minus(maximum(minus(x), splat(-_HIGHEST))), splat(_LOWEST))
    n = round_even(mul(x, splat(_LOG2_E)))
    r = fma(n, splat(-_LN2_LOW), fma(n, splat(-_LN2_HIGH), x))
    p = fma(fma(splat(_C0), r, splat(_C1)), r, splat(_C2))
    p = fma(fma(fma(p, r, splat(_C3)), r, splat(_C4)), r, splat(_HALF))
    return mul(add(fma(p, mul(r, r), r), splat(_ONE)), power_of_two(n))


_LEAST, _INTEGERS = np.float32(-127.0), np.float32(1.5 * 2**23 + 127)
_B1, _B2, _B3, _B4, _B5 = (
    np.float32(c) for c in (0.6931470037, 0.2402224243, 0.05550733581, 0.009671512991, 0.001326472731)
)


@device()
def exp2_below(x: Any) -> Any:
    """2 ** x for x at most 0, within 2 units in the last place; exactly 0 below -126.5, 1 at 0, NaN of NaN.

    Added to a number whose last bit is worth 1, x is rounded to n, and the low bits are n's exponent.
    """
    x = where_less(x, splat(_LEAST), splat(_LEAST), x)
    biased = add(x, splat(_INTEGERS))
    r = sub(x, sub(biased, splat(_INTEGERS)))
    p = fma(fma(fma(splat(_B5), r, splat(_B4)), r, splat(_B3)), r, splat(_B2))
    return mul(fma(fma(p, r, splat(_B1)), r, splat(_ONE)), low_bits_as_exponent(biased))
