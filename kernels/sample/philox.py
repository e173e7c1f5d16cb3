"""Philox4x32-10 (Salmon et al., 2011, doi:10.1145/2063384.2063405), sixteen counters at a time.

Sixteen consecutive counters give 64 words: the bits of 64 consecutive tokens.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from stretto.kernels import llvm
from stretto.kernels.llvm import FLOATS, I32, I64, LANES, LONGS, WORDS
from stretto.kernels.simd import lanes

BLOCK = 4 * LANES
"""Words, and tokens, of one call."""


def _words(builder: Any, value: Any) -> tuple[Any, Any]:
    """Low and high word of an int64, each in every lane."""
    high = builder.lshr(value, I64(32))
    return tuple(llvm.splat(builder, builder.trunc(part, I32), WORDS) for part in (value, high))


def _product(builder: Any, a: int, b: Any) -> tuple[Any, Any]:
    """High and low words of the products."""
    wide = builder.mul(builder.zext(b, LONGS), llvm.constant(LONGS, a))
    high = builder.lshr(wide, llvm.constant(LONGS, 32))
    return builder.trunc(high, WORDS), builder.trunc(wide, WORDS)


def _rounds(builder: Any, counter: list[Any], key: tuple[Any, Any]) -> list[Any]:
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        (high0, low0), (high1, low1) = _product(builder, 0xD2511F53, c0), _product(builder, 0xCD9E8D57, c2)
        c0 = builder.xor(builder.xor(high1, c1), k0)
        c2 = builder.xor(builder.xor(high0, c3), k1)
        c1, c3 = low1, low0
        k0 = builder.add(k0, llvm.constant(WORDS, 0x9E3779B9))
        k1 = builder.add(k1, llvm.constant(WORDS, 0xBB67AE85))
    return [c0, c1, c2, c3]


def _in_order(builder: Any, words: list[Any]) -> list[Any]:
    """Four vectors, word w of counter i in lane i, as one run: word w of counter i at 4 * i + w."""
    even = llvm.interleave(builder, words[0], words[2])
    odd = llvm.interleave(builder, words[1], words[3])
    return [part for a, b in zip(even, odd, strict=True) for part in llvm.interleave(builder, a, b)]


@intrinsic
def philox(typing: Any, first: Any, position: Any, seed: Any, out: Any) -> Any:
    """out[4 * i + w] = word w at counter (first + i, 0, position), key seed, i in 0..15; out: int32 [64]."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        start = llvm.splat(builder, builder.trunc(values[0], I32), WORDS)
        numbers = builder.add(start, ir.Constant(WORDS, list(range(LANES))))
        counter = [numbers, llvm.constant(WORDS, 0), *_words(builder, values[1])]
        words = _rounds(builder, counter, _words(builder, values[2]))
        for index, part in enumerate(_in_order(builder, words)):
            place = llvm.place(context, builder, signature.args[3], values[3], I64(LANES * index), WORDS)
            builder.store(part, place, align=4)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, types.int64, out), generate


@intrinsic
def unsigned(typing: Any, words: Any, index: Any) -> Any:
    """words[index : index + 16] as unsigned numbers, rounded to float32."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        place = llvm.place(context, builder, signature.args[0], values[0], values[1], WORDS)
        return builder.uitofp(builder.load(place, align=4), FLOATS)

    return lanes(words, types.int64), generate
