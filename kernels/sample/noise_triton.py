"""exp, log and Gumbel noise in Triton, step by step the reference's.

Only for kernels launched with `enable_fp_fusion=False`.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit
def exp(x: tl.tensor) -> Any:
    """The reference's exp."""
    n = tl.floor(x * 1.44269504088896341 + 0.5)
    r = x - n * 0.693359375 - n * -2.12194440e-4
    p = 1.9875691500e-4 * r + 1.3981999507e-3
    p = p * r + 8.3334519073e-3
    p = p * r + 4.1665795894e-2
    p = p * r + 1.6666665459e-1
    p = p * r + 0.5
    power = ((n.to(tl.int32) + 127) << 23).to(tl.float32, bitcast=True)
    return (p * (r * r) + r + 1.0) * power


@triton.jit
def log(x: tl.tensor) -> Any:
    """The reference's log."""
    bits = x.to(tl.int32, bitcast=True)
    m = ((bits & 0x007FFFFF) | 0x3F000000).to(tl.float32, bitcast=True)
    low = m < 0.707106781186547524
    e = ((bits >> 23) - 126 - low.to(tl.int32)).to(tl.float32)
    f = tl.where(low, m + m, m) - 1.0
    p = 7.0376836292e-2 * f + -1.1514610310e-1
    p = p * f + 1.1676998740e-1
    p = p * f + -1.2420140846e-1
    p = p * f + 1.4249322787e-1
    p = p * f + -1.6668057665e-1
    p = p * f + 2.0000714765e-1
    p = p * f + -2.4999993993e-1
    p = p * f + 3.3333331174e-1
    z = f * f
    y = p * f * z + e * -2.12194440e-4
    return f + (y + z * -0.5) + e * 0.693359375


@triton.jit
def words(seed: tl.tensor, position: tl.tensor, first: tl.tensor, COUNT: tl.constexpr) -> Any:
    """The random words of COUNT tokens from `first` on, a multiple of 4; uint32 [COUNT]."""
    counter = (first // 4 + tl.arange(0, COUNT // 4)).to(tl.uint32)
    none = tl.zeros_like(counter)
    low, high = (position & 0xFFFFFFFF).to(tl.uint32) + none, (position >> 32).to(tl.uint32) + none
    w0, w1, w2, w3 = tl.philox(seed, counter, none, low, high)
    return tl.interleave(tl.interleave(w0, w2), tl.interleave(w1, w3))


@triton.jit
def gumbel(bits: tl.tensor) -> Any:
    """The reference's noise from random words."""
    v = tl.minimum(
        bits.to(tl.float32) * 2.3283064365386963e-10 + 1.1641532182693481e-10, 0.999999940395355225
    )
    u = 1.0 - v
    waited = tl.where(u < 1.0, (0.0 - log(u)) * tl.div_rn(v, 1.0 - u), v)
    return 0.0 - log(waited)
