"""The two matrix products of attention on one tile of 16 tokens, as LLVM instructions."""

from __future__ import annotations

import itertools
from typing import Any

import llvmlite.binding
from numba import types
from numba.extending import intrinsic

from stretto.kernels import llvm
from stretto.kernels.llvm import I64, LANES
from stretto.kernels.simd import read, read_first, vector_type
from stretto.kernels.tile import accumulate, for_each_count, make_tile, multiply_add

_features = llvmlite.binding.get_host_cpu_features()

QUERIES = 8
"""Query vectors that share the load of a key or of a value."""

dots = make_tile(QUERIES, 1, "float32")
"""Scores of up to 8 queries, [queries, 16]; its weights are the keys, turned: [head_dim, 16]."""


_WIDE = (4, 4) if _features.get("avx512f") else (3, 2)
FEW, WIDE = _WIDE[0], LANES * _WIDE[1]
"""So few queries can share so many columns at a time without running out of registers: more sums that do not
wait for each other."""


def make_blend(most: int, panels: int) -> Any:
    """blend(queries, acc, at, stride, decays, weights, tokens, values, offsets, base, columns, ahead).

    acc = acc * decays + weights @ values for up to `most` queries and `panels` * 16 columns, tokens in order.
    acc: flat, query r's columns at acc[at + r * stride :]. decays: [queries, 16], each query's number in all
    lanes. weights: [queries, 16 tokens]. values: token t's columns at values[offsets[t] + base :], of which
    `columns` are read, all of them unless `panels` is 1; float16 and fp8 too. ahead: address of what is
    worked on next, of which the caches are asked for as many bytes as the values have, line by line.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        queries, acc, at, stride, decays, weights, tokens, values, offsets, base, columns, ahead = arguments
        _, acc_type, _, _, decays_type, weights_type, _, values_type, offsets_type, _, _, _ = signature.args
        weights = context.make_array(weights_type)(context, builder, weights).data
        offsets = context.make_array(offsets_type)(context, builder, offsets).data
        following = builder.inttoptr(ahead, vector_type(values_type).as_pointer())

        def part(token: Any) -> list[Any]:
            first = builder.add(builder.load(builder.gep(offsets, [token])), base)
            for panel in range(panels):
                line = builder.add(builder.mul(token, I64(panels)), I64(panel))
                llvm.prefetch(builder, builder.gep(following, [line]))
            if panels == 1:
                return [read_first(context, builder, values_type, values, first, columns)]
            places = [builder.add(first, I64(LANES * panel)) for panel in range(panels)]
            return [read(context, builder, values_type, values, place) for place in places]

        def decayed(query: int, place: Any) -> Any:
            decay = llvm.place(context, builder, decays_type, decays, I64(LANES * query))
            return builder.fmul(builder.load(place, align=4), builder.load(decay, align=4))

        def run(count: int) -> None:
            rows = [builder.gep(weights, [I64(LANES * query)]) for query in range(count)]
            starts = [builder.add(at, builder.mul(stride, I64(query))) for query in range(count)]
            pairs = list(itertools.product(range(count), range(panels)))
            where = [builder.add(starts[query], I64(LANES * panel)) for query, panel in pairs]
            places = [llvm.place(context, builder, acc_type, acc, index) for index in where]

            def step(token: Any, sums: list[Any]) -> list[Any]:
                vectors, factors = part(token), [builder.gep(row, [token]) for row in rows]
                terms = zip(itertools.product(factors, vectors), sums, strict=True)
                return [multiply_add(builder, factor, vector, total) for (factor, vector), total in terms]

            firsts = [decayed(query, place) for (query, _), place in zip(pairs, places, strict=True)]
            sums = accumulate(builder, tokens, firsts, step)
            for place, total in zip(places, sums, strict=True):
                builder.store(total, place, align=4)

        for_each_count(builder, queries, most, run)
        return context.get_dummy_value()

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
        ahead: Any,
    ) -> Any:
        i64 = types.int64
        kinds = (i64, acc, i64, i64, decays, weights, i64, values, offsets, i64, i64, i64)
        return types.none(*kinds), generate

    return blend


blend, blend_wide = make_blend(QUERIES, 1), make_blend(*_WIDE)
