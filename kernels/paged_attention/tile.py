"""The two matrix products of attention on one tile of 32 tokens, as LLVM instructions."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import llvmlite.binding
from numba import types
from numba.extending import intrinsic

from stretto.kernels import llvm
from stretto.kernels.llvm import FLOATS, I64, LANES
from stretto.kernels.simd import lanes
from stretto.kernels.tile import accumulate, multiply_add

_features = llvmlite.binding.get_host_cpu_features()

PANELS = 2
"""Vectors side by side: those of a tile's tokens, and those of as many columns of their values."""

TILE = LANES * PANELS
"""Tokens of a tile."""

LINE = 64
"""Bytes that the caches fetch at once."""

QUERIES = 8 if _features.get("avx512f") else 3
"""Query vectors that the products work on: what fits the registers."""

ROWS = 1 << (QUERIES - 1).bit_length()
"""Rows of scores that there is memory for."""


def asker(
    context: Any, builder: Any, cache_type: Any, cache: Any, asked: Any, base: Any
) -> Callable[[Any], None]:
    """ask(k) has the caches fetch the 32 elements of `cache` from asked[k] + base on; asked: an address."""
    places = builder.inttoptr(asked, I64.as_pointer())
    first = context.make_array(cache_type)(context, builder, cache).data

    def ask(k: Any) -> None:
        start = builder.add(builder.load(builder.gep(places, [k])), base)
        for element in range(0, TILE, LINE * 8 // cache_type.dtype.bitwidth):
            llvm.prefetch(builder, builder.gep(first, [builder.add(start, I64(element))]))

    return ask


def make_product(joins: bool) -> Callable[..., None]:
    """product(x, x_stride, weights, stride, depth, out, out_stride, decays, cache, asked, base).

    out = x @ weights, or out * decays + x @ weights where it `joins`, for QUERIES rows and 32 columns; every
    element is one running sum in the order of the inner index. Addresses of float32: x [QUERIES, depth],
    weights [depth, 32], out [QUERIES, 32], decays [QUERIES], and of int64: asked [depth]; strides in
    elements. At step k the caches are asked for the 32 elements of `cache` from asked[k] + base on.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, x_stride, weights, stride, depth, out, out_stride, decays, cache, asked, base = arguments
        numbers = llvm.F32.as_pointer()
        x, weights, out, decays = (builder.inttoptr(p, numbers) for p in (x, weights, out, decays))
        ask = asker(context, builder, signature.args[8], cache, asked, base)

        def vector(first: Any, index: Any) -> Any:
            return builder.bitcast(builder.gep(first, [index]), FLOATS.as_pointer())

        rows = [builder.gep(x, [builder.mul(x_stride, I64(row))]) for row in range(QUERIES)]
        pairs = itertools.product(range(QUERIES), range(PANELS))
        starts = [builder.mul(out_stride, I64(row)) for row in range(QUERIES)]
        targets = [vector(out, builder.add(starts[row], I64(LANES * panel))) for row, panel in pairs]

        def first(index: int) -> Any:
            if not joins:
                return llvm.constant(FLOATS, 0.0)
            decay = builder.load(builder.gep(decays, [I64(index // PANELS)]))
            return builder.fmul(builder.load(targets[index], align=4), llvm.splat(builder, decay))

        def step(k: Any, sums: list[Any]) -> list[Any]:
            start = builder.mul(k, stride)
            parts = [vector(weights, builder.add(start, I64(LANES * panel))) for panel in range(PANELS)]
            vectors = [builder.load(part, align=4) for part in parts]
            ask(k)
            terms = zip(itertools.product(rows, vectors), sums, strict=True)
            return [multiply_add(builder, builder.gep(row, [k]), part, total) for (row, part), total in terms]

        sums = accumulate(builder, depth, [first(index) for index in range(len(targets))], step)
        for place, total in zip(targets, sums, strict=True):
            builder.store(total, place, align=4)
        return context.get_dummy_value()

    @intrinsic
    def product(
        typing: Any,
        x: Any,
        x_stride: Any,
        weights: Any,
        stride: Any,
        depth: Any,
        out: Any,
        out_stride: Any,
        decays: Any,
        cache: Any,
        asked: Any,
        base: Any,
    ) -> Any:
        return types.none(*[types.int64] * 8, cache, types.int64, types.int64), generate

    return product


@intrinsic
def row_maxima(typing: Any, scores: Any) -> Any:
    """The largest of each row of scores, in the lane of its number, where none is NaN; scores: their address,
    float32 [ROWS, 32].
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        first = builder.inttoptr(values[0], FLOATS.as_pointer())
        parts = [builder.load(builder.gep(first, [I64(i)]), align=4) for i in range(ROWS * PANELS)]
        rows = [
            functools.reduce(functools.partial(llvm.larger, builder), parts[i : i + PANELS])
            for i in range(0, len(parts), PANELS)
        ]
        return llvm.fold_rows(builder, rows, llvm.larger)

    return lanes(types.int64), generate


dots, blend = make_product(joins=False), make_product(joins=True)
