"""Numbers of sixteen bits, IEEE 754's binary16, as LLVM instructions, sixteen at a time.

They have a sign, five bits of exponent and ten of mantissa; the largest is 65504. It is torch.float16.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from stretto.kernels import llvm
from stretto.kernels.llvm import FLOATS, LANES

SHORTS = ir.VectorType(ir.IntType(16), LANES)
HALVES = ir.VectorType(ir.HalfType(), LANES)

LARGEST = 65504.0


def widen(builder: Any, stored: Any) -> Any:
    """Float32 of sixteen words of 16 bits, exactly."""
    return builder.fpext(builder.bitcast(stored, HALVES), FLOATS)


def narrow(builder: Any, vector: Any) -> Any:
    """Sixteen such words of float32: rounded to nearest, halves to even, saturated; NaN stays NaN."""
    most, least = llvm.constant(FLOATS, LARGEST), llvm.constant(FLOATS, -LARGEST)
    vector = builder.select(builder.fcmp_ordered(">", vector, most), most, vector)
    vector = builder.select(builder.fcmp_ordered("<", vector, least), least, vector)
    return builder.bitcast(builder.fptrunc(vector, HALVES), SHORTS)
