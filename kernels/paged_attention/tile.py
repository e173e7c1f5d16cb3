"""The two matrix products of attention on one tile of 16 tokens, as LLVM instructions."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic

from stretto.kernels import llvm
from stretto.kernels.llvm import I64, LANES
from stretto.kernels.simd import read_first
from stretto.kernels.tile import accumulate, for_each_count, make_tile, multiply_add

QUERIES = 8
"""Query vectors that share the load of a key or of a value."""

dots = make_tile(QUERIES, 1, "float32")
"""Scores of up to 8 queries, [queries, 16]; its weights are the keys, turned: [head_dim, 16]."""


@intrinsic
def blend(
    typing: Any,
    queries: Any,
    acc: Any,
    at: Any,
    stride: Any,
    decays: Any,
    weights: Any,
    tokens: Any,
    values: Any,
    offsets: Any,
    base: Any,
    columns: Any,
) -> Any:
    """acc = acc * decays + weights @ values for up to 8 queries and 16 columns, tokens in order.

    acc: flat, query r's columns at acc[at + r * stride :]. decays: [queries, 16], each query's number in all
    lanes. weights: [queries, 16 tokens]. values: token t's columns at values[offsets[t] + base :], of which
    `columns` are read; fp8 too.
    """
    i64 = types.int64
    kinds = (i64, acc, i64, i64, decays, weights, i64, values, offsets, i64, i64)
    return types.none(*kinds), _generate_blend


def _generate_blend(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    queries, acc, at, stride, decays, weights, tokens, values, offsets, base, columns = arguments
    _, acc_type, _, _, decays_type, weights_type, _, values_type, offsets_type, _, _ = signature.args
    weights = context.make_array(weights_type)(context, builder, weights).data
    offsets = context.make_array(offsets_type)(context, builder, offsets).data

    def value(token: Any) -> Any:
        index = builder.add(builder.load(builder.gep(offsets, [token])), base)
        return read_first(context, builder, values_type, values, index, columns)

    def decayed(query: int, place: Any) -> Any:
        decay = llvm.place(context, builder, decays_type, decays, I64(LANES * query))
        return builder.fmul(builder.load(place, align=4), builder.load(decay, align=4))

    def run(count: int) -> None:
        rows = [builder.gep(weights, [I64(LANES * query)]) for query in range(count)]
        starts = [builder.add(at, builder.mul(stride, I64(query))) for query in range(count)]
        places = [llvm.place(context, builder, acc_type, acc, start) for start in starts]

        def step(token: Any, sums: list[Any]) -> list[Any]:
            vector, factors = value(token), [builder.gep(row, [token]) for row in rows]
            pairs = zip(factors, sums, strict=True)
            return [multiply_add(builder, factor, vector, total) for factor, total in pairs]

        sums = accumulate(builder, tokens, [decayed(*pair) for pair in enumerate(places)], step)
        for place, total in zip(places, sums, strict=True):
            builder.store(total, place, align=4)

    for_each_count(builder, queries, QUERIES, run)
    return context.get_dummy_value()
