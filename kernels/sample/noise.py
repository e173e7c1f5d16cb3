"""Gumbel noise from random words, by polynomials that the reference repeats bit for bit.

No fused multiply-add: torch has none, and a compiler must not make one of these steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stretto.kernels import simd
from stretto.kernels.sample.philox import unsigned

LARGEST = np.float32(23)
"""No noise is larger: v is at least 2 ** -33, and 33 log 2 is 22.9."""
_HALF, _ONE = np.float32(0.5), np.float32(1)
_STEP, _HALF_STEP, _MOST = np.float32(2**-32), np.float32(2**-33), np.float32(1 - 2**-24)
_SQRT_HALF = np.float32(0.707106781186547524)
_LOG2_E, _LN2_HIGH, _LN2_LOW = (
    np.float32(1.44269504088896341),
    np.float32(0.693359375),
    np.float32(-2.12194440e-4),
)
_E0, _E1, _E2, _E3, _E4 = (
    np.float32(c)
    for c in (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1)
)
_L0, _L1, _L2, _L3, _L4, _L5, _L6, _L7, _L8 = (
    np.float32(c)
    for c in (
        7.0376836292e-2,
        -1.1514610310e-1,
        1.1676998740e-1,
        -1.2420140846e-1,
        1.4249322787e-1,
        -1.6668057665e-1,
        2.0000714765e-1,
        -2.4999993993e-1,
        3.3333331174e-1,
    )
)


@simd.device()
def _horner(p: Any, x: Any, c: Any) -> Any:
    return simd.add(simd.mul(p, x), simd.splat(c))


@simd.device()
def exp(x: Any) -> Any:
    """The reference's exp."""
    n = simd.floor(simd.add(simd.mul(x, simd.splat(_LOG2_E)), simd.splat(_HALF)))
    r = simd.sub(simd.sub(x, simd.mul(n, simd.splat(_LN2_HIGH))), simd.mul(n, simd.splat(_LN2_LOW)))
    p = _horner(_horner(simd.splat(_E0), r, _E1), r, _E2)
    p = _horner(_horner(_horner(p, r, _E3), r, _E4), r, _HALF)
    p = simd.add(simd.add(simd.mul(p, simd.mul(r, r)), r), simd.splat(_ONE))
    return simd.mul(p, simd.power_of_two(n))


@simd.device()
def log(x: Any) -> Any:
    """The reference's log."""
    m, e = simd.mantissa(x), simd.exponent(x)
    half = simd.splat(_SQRT_HALF)
    f = simd.sub(simd.where_less(m, half, simd.add(m, m), m), simd.splat(_ONE))
    e = simd.where_less(m, half, simd.sub(e, simd.splat(_ONE)), e)
    p = _horner(_horner(_horner(simd.splat(_L0), f, _L1), f, _L2), f, _L3)
    p = _horner(_horner(_horner(p, f, _L4), f, _L5), f, _L6)
    p = _horner(_horner(p, f, _L7), f, _L8)
    z = simd.mul(f, f)
    y = simd.add(simd.mul(simd.mul(p, f), z), simd.mul(e, simd.splat(_LN2_LOW)))
    y = simd.add(y, simd.mul(z, simd.splat(-_HALF)))
    return simd.add(simd.add(f, y), simd.mul(e, simd.splat(_LN2_HIGH)))


@simd.device()
def noise(words: Any, index: int) -> Any:
    """Gumbel noise from 16 words: the reference's `gumbel`."""
    one = simd.splat(_ONE)
    v = simd.add(simd.mul(unsigned(words, index), simd.splat(_STEP)), simd.splat(_HALF_STEP))
    v = simd.where_less(v, simd.splat(_MOST), v, simd.splat(_MOST))
    u = simd.sub(one, v)
    exact = simd.mul(simd.minus(log(u)), simd.div(v, simd.sub(one, u)))
    return simd.minus(log(simd.where_less(u, one, exact, v)))
