"""Philox4x32-10 (Salmon et al., 2011, doi:10.1145/2063384.2063405), sixteen counters at a time.

Sixteen consecutive counters give 64 words: the bits of 64 consecutive tokens.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from stretto.kernels.simd import LANES, lanes

BLOCK = 4 * LANES
"""Words, and tokens, of one call."""
_I32 = ir.IntType(32)
_WORDS = ir.VectorType(_I32, LANES)
_LONGS = ir.VectorType(ir.IntType(64), LANES)
_F32S = ir.VectorType(ir.FloatType(), LANES)


def _all(value: int) -> Any:
    return ir.Constant(_WORDS, [value] * LANES)


def _spread(builder: Any, word: Any) -> Any:
    one = builder.insert_element(ir.Constant(_WORDS, ir.Undefined), word, _I32(0))
    return builder.shuffle_vector(one, ir.Constant(_WORDS, ir.Undefined), _all(0))


def _words(builder: Any, value: Any) -> tuple[Any, Any]:
    """Low and high word of an int64, each in every lane."""
    high = builder.lshr(value, ir.IntType(64)(32))
    return _spread(builder, builder.trunc(value, _I32)), _spread(builder, builder.trunc(high, _I32))


def _product(builder: Any, a: int, b: Any) -> tuple[Any, Any]:
    """High and low words of the products."""
    wide = builder.mul(builder.zext(b, _LONGS), ir.Constant(_LONGS, [a] * LANES))
    high = builder.lshr(wide, ir.Constant(_LONGS, [32] * LANES))
    return builder.trunc(high, _WORDS), builder.trunc(wide, _WORDS)


def _rounds(builder: Any, counter: list[Any], key: tuple[Any, Any]) -> list[Any]:
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        (high0, low0), (high1, low1) = _product(builder, 0xD2511F53, c0), _product(builder, 0xCD9E8D57, c2)
        c0 = builder.xor(builder.xor(high1, c1), k0)
        c2 = builder.xor(builder.xor(high0, c3), k1)
        c1, c3 = low1, low0
        k0, k1 = builder.add(k0, _all(0x9E3779B9)), builder.add(k1, _all(0xBB67AE85))
    return [c0, c1, c2, c3]


def _interleave(builder: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """a[0], b[0], a[1], b[1] ...: the first half and the second half of it."""
    low = [lane // 2 + LANES * (lane % 2) for lane in range(LANES)]
    halves = [ir.Constant(_WORDS, [lane + shift for lane in low]) for shift in (0, LANES // 2)]
    return builder.shuffle_vector(a, b, halves[0]), builder.shuffle_vector(a, b, halves[1])


@intrinsic
def philox(typing: Any, first: Any, position: Any, seed: Any, out: Any) -> Any:
    """out[4 * i + w] = word w at counter (first + i, 0, position), key seed, for i in 0..15; out: int32 [64]."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        numbers = builder.add(
            _spread(builder, builder.trunc(values[0], _I32)), ir.Constant(_WORDS, list(range(LANES)))
        )
        counter = [numbers, _all(0), *_words(builder, values[1])]
        c0, c1, c2, c3 = _rounds(builder, counter, _words(builder, values[2]))
        even, odd = _interleave(builder, c0, c2), _interleave(builder, c1, c3)
        data = context.make_array(signature.args[3])(context, builder, values[3]).data
        data = builder.bitcast(data, _WORDS.as_pointer())
        parts = [part for a, b in zip(even, odd, strict=True) for part in _interleave(builder, a, b)]
        for index, part in enumerate(parts):
            builder.store(part, builder.gep(data, [_I32(index)]), align=4)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, types.int64, out), generate


@intrinsic
def unsigned(typing: Any, words: Any, index: Any) -> Any:
    """words[index : index + 16] as unsigned numbers, rounded to float32."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, values[0]).data
        place = builder.bitcast(builder.gep(data, [values[1]]), _WORDS.as_pointer())
        return builder.uitofp(builder.load(place, align=4), _F32S)

    return lanes(words, types.int64), generate
