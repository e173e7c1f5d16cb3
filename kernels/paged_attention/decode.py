"""The two matrix products of attention for a decode's few queries, straight from the cache.

They give the bits of those of `tile.py`, whose copy of a tile is worth its making for many queries only: a
tile of 64 columns of float16 takes three queries 200 ns this way and 310 that way (Zen 5).
"""

from __future__ import annotations

import itertools
from typing import Any

import llvmlite.binding
from numba import types
from numba.extending import intrinsic

from stretto.kernels import llvm
from stretto.kernels.llvm import FLOATS, I64, LANES
from stretto.kernels.paged_attention.tile import PANELS, TILE, asker
from stretto.kernels.simd import read
from stretto.kernels.tile import accumulate, multiply_add

_features = llvmlite.binding.get_host_cpu_features()

QUERIES, WIDE = (4, 4) if _features.get("avx512f") else (3, 2)
"""Queries of a KV head that there are registers for, with so many vectors of a value side by side."""


def _wide(head_dim: int) -> int:
    return WIDE if head_dim % (WIDE * LANES) == 0 else PANELS


def fits(group: int, head_dim: int) -> bool:
    """Whether there is code for so many queries of a KV head, and that head size."""
    return group <= QUERIES and head_dim % (_wide(head_dim) * LANES) == 0


def shape(group: int, head_dim: int) -> tuple[tuple[int, ...], ...]:
    """What says in its type, and so to the compiler, how many queries a KV head has, and how many vectors of
    a value are summed side by side: the lengths of a tuple, and of each of those in it.
    """
    return ((0,) * _wide(head_dim),) * min(group, QUERIES)


def _lengths(kind: Any) -> tuple[int, int]:
    """Of a shape's type."""
    return kind.count, kind.dtype.count


def _vector(builder: Any, first: Any, index: Any) -> Any:
    return builder.bitcast(builder.gep(first, [index]), FLOATS.as_pointer())


@intrinsic
def score(
    typing: Any,
    rows: Any,
    x: Any,
    x_stride: Any,
    keys: Any,
    tokens: Any,
    base: Any,
    depth: Any,
    out: Any,
    asked: Any,
    ahead: Any,
) -> Any:
    """out[r, t] = x[r] . the key of token t, in the order of its elements, for the rows of a `shape` and all
    tokens of a tile.

    Addresses of float32: x, out [rows, 32], and of int64: tokens [32], where in keys[base:] theirs begin, and
    asked [depth]; depth: a multiple of 16; stride in elements. What is in `asked` is asked for from `ahead`
    on, as in `tile.make_product`.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, x, x_stride, keys, tokens, base, depth, out, asked, ahead = arguments
        (count, _), keys_type = _lengths(signature.args[0]), signature.args[3]
        x, out = (builder.inttoptr(p, llvm.F32.as_pointer()) for p in (x, out))
        tokens = builder.inttoptr(tokens, I64.as_pointer())
        ask = asker(context, builder, keys_type, keys, asked, ahead)
        queries = [builder.gep(x, [builder.mul(x_stride, I64(row))]) for row in range(count)]

        def turned(panel: Any, column: Any) -> list[Any]:
            first = builder.mul(panel, I64(LANES))
            places = [builder.gep(tokens, [builder.add(first, I64(lane))]) for lane in range(LANES)]
            starts = [builder.add(builder.load(place), column) for place in places]
            return llvm.transpose(builder, [read(context, builder, keys_type, keys, at) for at in starts])

        def step(i: Any, sums: list[Any]) -> list[Any]:
            """16 elements of a panel's keys; its sums go behind the other's, so that the code is for one
            panel, whose keys fit the registers, and no sum waits for the one just before.
            """
            first = builder.mul(builder.udiv(i, I64(PANELS)), I64(LANES))
            panel, own = builder.urem(i, I64(PANELS)), sums[:count]
            for j, vector in enumerate(turned(panel, builder.add(base, first))):
                if j % PANELS == 0:
                    ask(builder.add(builder.mul(i, I64(LANES // PANELS)), I64(j // PANELS)))
                places = [builder.gep(query, [builder.add(first, I64(j))]) for query in queries]
                pairs = zip(places, own, strict=True)
                own = [multiply_add(builder, place, vector, total) for place, total in pairs]
            return sums[count:] + own

        zeros = [llvm.constant(FLOATS, 0.0)] * (count * PANELS)
        steps = builder.udiv(depth, I64(LANES // PANELS))
        for i, total in enumerate(accumulate(builder, steps, zeros, step)):
            place = I64(i % count * TILE + i // count * LANES)
            builder.store(total, _vector(builder, out, place), align=4)
        return context.get_dummy_value()

    i64 = types.int64
    return types.none(rows, i64, i64, keys, i64, i64, i64, i64, i64, i64), generate


@intrinsic
def mix(
    typing: Any,
    rows: Any,
    weights: Any,
    values: Any,
    tokens: Any,
    base: Any,
    count: Any,
    out: Any,
    stride: Any,
    decays: Any,
    asked: Any,
    ahead: Any,
) -> Any:
    """out[r] = out[r] * decays[r] + the sum of weights[r, t] * values of token t for t = 0 .. count - 1, for
    the rows and columns of a `shape`; see `score`.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, weights, values, tokens, base, count, out, stride, decays, asked, ahead = arguments
        values_type, (rows, wide) = signature.args[2], _lengths(signature.args[0])
        weights, out, decays = (builder.inttoptr(p, llvm.F32.as_pointer()) for p in (weights, out, decays))
        tokens = builder.inttoptr(tokens, I64.as_pointer())
        ask = asker(context, builder, values_type, values, asked, ahead)
        factors = [builder.gep(weights, [I64(TILE * row)]) for row in range(rows)]
        pairs = list(itertools.product(range(rows), range(wide)))
        starts = [builder.mul(stride, I64(row)) for row in range(rows)]
        targets = [_vector(builder, out, builder.add(starts[row], I64(LANES * i))) for row, i in pairs]

        def first(row: int, target: Any) -> Any:
            decay = builder.load(builder.gep(decays, [I64(row)]))
            return builder.fmul(builder.load(target, align=4), llvm.splat(builder, decay))

        def step(token: Any, sums: list[Any]) -> list[Any]:
            start = builder.add(builder.load(builder.gep(tokens, [token])), base)
            places = [builder.add(start, I64(LANES * i)) for i in range(wide)]
            vectors = [read(context, builder, values_type, values, place) for place in places]
            for i in range(wide // PANELS):
                ask(builder.add(builder.mul(token, I64(wide // PANELS)), I64(i)))
            pairs = zip(itertools.product(factors, vectors), sums, strict=True)
            terms = [(builder.gep(row, [token]), part, total) for (row, part), total in pairs]
            return [multiply_add(builder, *term) for term in terms]

        sums = [first(row, target) for (row, _), target in zip(pairs, targets, strict=True)]
        for target, total in zip(targets, accumulate(builder, count, sums, step), strict=True):
            builder.store(total, target, align=4)
        return context.get_dummy_value()

    i64 = types.int64
    return types.none(rows, i64, values, i64, i64, i64, i64, i64, i64, i64, i64), generate
