"""Floating-point numbers of eight bits, E4M3 (Micikevicius et al., 2022, arXiv:2209.05433), as LLVM
instructions, sixteen at a time.

They have a sign, four bits of exponent and three of mantissa, no infinities, and a NaN of each sign; the
largest is 448. It is torch.float8_e4m3fn, and numbers are rounded as torch rounds them.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from stretto.kernels import llvm
from stretto.kernels.fp16 import HALVES, SHORTS
from stretto.kernels.llvm import FLOATS, LANES, WORDS

BYTES = ir.VectorType(ir.IntType(8), LANES)

LARGEST = 448.0
_NAN = 0x7F
_SMALLEST_NORMAL = 121 << 23
"""Bits of the float32 2 ** -6."""
_REBIAS = 120 << 23
"""Between the exponents of float32 and of fp8, in float32's place."""
_MAGIC = 2.0**14
"""A float32 next to it is 2 ** -9 away, which is the distance of numbers below the smallest normal one."""


def widen(builder: Any, stored: Any) -> Any:
    """Float32 of sixteen bytes, exactly.

    A half has the same fields, with one more bit of exponent and a bias larger by 8, so it takes the bits as
    they are; what is denormal here is denormal there, and converted without loss.
    """
    words = builder.zext(stored, SHORTS)
    size = builder.and_(words, llvm.constant(SHORTS, _NAN))
    sign = builder.shl(builder.and_(words, llvm.constant(SHORTS, 0x80)), llvm.constant(SHORTS, 8))
    half = builder.bitcast(builder.or_(builder.shl(size, llvm.constant(SHORTS, 7)), sign), HALVES)
    number = builder.fmul(builder.fpext(half, FLOATS), llvm.constant(FLOATS, 256.0))
    is_nan = builder.icmp_unsigned("==", size, llvm.constant(SHORTS, _NAN))
    return builder.select(is_nan, llvm.constant(FLOATS, float("nan")), number)


def narrow(builder: Any, vector: Any) -> Any:
    """Sixteen bytes of float32: rounded to nearest, halves to even, saturated at 448; NaN stays NaN."""
    bits = builder.bitcast(vector, WORDS)
    sign = builder.and_(builder.lshr(bits, llvm.constant(WORDS, 24)), llvm.constant(WORDS, 0x80))
    size = builder.bitcast(builder.and_(bits, llvm.constant(WORDS, 0x7FFFFFFF)), FLOATS)
    most = llvm.constant(FLOATS, LARGEST)
    size = builder.select(builder.fcmp_ordered(">", size, most), most, size)
    bits = builder.bitcast(size, WORDS)
    is_small = builder.icmp_unsigned("<", bits, llvm.constant(WORDS, _SMALLEST_NORMAL))
    code = builder.select(is_small, _small(builder, size), _normal(builder, bits))
    code = builder.select(builder.fcmp_unordered("uno", size, size), llvm.constant(WORDS, _NAN), code)
    return builder.trunc(builder.or_(code, sign), BYTES)


def _normal(builder: Any, bits: Any) -> Any:
    """The upper bits, after half of what is cut off was added, less a bit where the rest is even."""
    odd = builder.and_(builder.lshr(bits, llvm.constant(WORDS, 20)), llvm.constant(WORDS, 1))
    rounded = builder.add(builder.add(bits, odd), llvm.constant(WORDS, (1 << 19) - 1 - _REBIAS))
    return builder.lshr(rounded, llvm.constant(WORDS, 20))


def _small(builder: Any, size: Any) -> Any:
    """The addition rounds to a multiple of 2 ** -9."""
    magic = llvm.constant(FLOATS, _MAGIC)
    total = builder.bitcast(builder.fadd(size, magic), WORDS)
    return builder.sub(total, builder.bitcast(magic, WORDS))
