"""Activations to 8 bits, as the integer products take them.

`dot.py` says how a row lies in memory. A group whose largest number is not finite gets the scale NaN.

Measured on one core (Zen 5), nanoseconds for a group of 64 and of 32: 6.7 and 5.0. A pass for the largest
number and one to round, each 16 numbers at a time: 24 and 16.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from stretto.kernels import llvm, simd
from stretto.kernels.dot import row_bytes
from stretto.kernels.llvm import F32, FLOATS, I32, I64, LANES, WORDS

_BYTES = ir.VectorType(ir.IntType(8), LANES)
_MAGNITUDE, _INFINITE = 0x7FFFFFFF, 0x7F800000
_TINY = 2.0**-119
"""Below it 127 / x overflows."""
_SHIFT, _SHIFT_BITS = 1.5 * 2**23, 0x4B400000
"""Added to x of a magnitude below 2 ** 22 it rounds to the nearest integer, halves to the even one, and that
integer is then what the bits exceed these bits by."""


def _largest(builder: Any, vectors: list[Any]) -> Any:
    """Bits of the largest magnitude; those of infinity or NaN are above all others."""
    mask = llvm.constant(WORDS, _MAGNITUDE)
    words = [builder.and_(builder.bitcast(vector, WORDS), mask) for vector in vectors]
    larger = functools.reduce(lambda a, b: llvm.call(builder, "llvm.umax.v16i32", WORDS, [a, b]), words)
    return llvm.call(builder, "llvm.vector.reduce.umax.v16i32", I32, [larger])


def _scales(builder: Any, bits: Any) -> list[Any]:
    """The scale of a group with that largest magnitude, and its inverse."""
    most, zero, steps = builder.bitcast(bits, F32), F32(0.0), F32(127.0)
    finite = builder.icmp_unsigned("<", bits, I32(_INFINITE))
    usable = builder.and_(finite, builder.fcmp_ordered(">", most, F32(_TINY)))
    scale = builder.select(finite, builder.fdiv(most, steps), F32(float("nan")))
    return [scale, builder.select(usable, builder.fdiv(steps, most), zero)]


def _store(builder: Any, value: Any, address: Any) -> None:
    builder.store(value, builder.inttoptr(address, value.type.as_pointer()), align=1)


def _round(builder: Any, vectors: list[Any], inverse: Any, address: Any) -> Any:
    """Store the vectors times `inverse` as bytes; returns their sum, int32."""
    factor, shift = llvm.splat(builder, inverse), llvm.constant(FLOATS, _SHIFT)
    total = llvm.constant(WORDS, 0)
    for index, vector in enumerate(vectors):
        shifted = builder.fadd(builder.fmul(vector, factor), shift)
        words = builder.bitcast(shifted, WORDS)
        _store(builder, builder.trunc(words, _BYTES), builder.add(address, I64(LANES * index)))
        total = builder.add(total, words)
    excess = -LANES * len(vectors) * _SHIFT_BITS % 2**32
    return builder.add(llvm.call(builder, "llvm.vector.reduce.add.v16i32", I32, [total]), I32(excess))


def _group_rounder(bits: int, group: int, whole: bool) -> Any:
    """round(x, start, left, to): the group that begins with x[start : start + left] and ends with zeros."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        x, start, left, to = values

        def part(at: int) -> Any:
            place = builder.add(start, I64(at))
            if whole:
                return simd.read(context, builder, signature.args[0], x, place)
            count = builder.sub(left, I64(at))
            return simd.read_first(context, builder, signature.args[0], x, place, count)

        vectors = [part(at) for at in range(0, group, LANES)]
        scale, inverse = _scales(builder, _largest(builder, vectors))
        total = _round(builder, vectors, inverse, to)
        factor = builder.mul(total, I32(-128)) if bits == 8 else builder.sitofp(total, F32)
        _store(builder, scale, builder.add(to, I64(group)))
        _store(builder, factor, builder.add(to, I64(group + 4)))
        return context.get_dummy_value()

    @intrinsic
    def round_group(typing: Any, x: Any, start: Any, left: Any, to: Any) -> Any:
        return types.none(x, types.int64, types.int64, types.int64), generate

    return round_group


def make_round(bits: int, group: int) -> Callable[..., None]:
    """round(x, start, depth, to): x[start : start + depth] of a float32 array into the row at an address, for
    weights of so many bits.
    """
    whole, part = _group_rounder(bits, group, True), _group_rounder(bits, group, False)
    size = row_bytes(group)

    @simd.device()
    def round_row(x: Any, start: int, depth: int, to: int) -> None:
        groups = depth // group
        for g in range(groups):
            whole(x, start + g * group, group, to + g * size)
        if depth % group:
            part(x, start + groups * group, depth % group, to + groups * size)

    return round_row
