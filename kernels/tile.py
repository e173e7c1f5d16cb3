"""The inner loops of matrix products, as LLVM instructions, for a few rows at a time.

Every output element is one running sum of fused multiply-adds in the order of the inner index, so its bits do
not depend on the rows it is computed with.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from stretto.kernels import llvm
from stretto.kernels.llvm import FLOATS, I64, LANES, WORDS

_STORED = {
    "float16": ir.VectorType(ir.HalfType(), LANES),
    "bfloat16": ir.VectorType(ir.IntType(16), LANES),
    "float32": FLOATS,
}


def accumulate(
    builder: Any, depth: Any, sums: list[Any], step: Callable[[Any, list[Any]], list[Any]]
) -> list[Any]:
    """The sums after `step(k, sums)` for k = 0 .. depth - 1, all kept in registers; depth is at least 1."""
    before, body = builder.block, builder.append_basic_block("k")
    end = builder.append_basic_block("k.end")
    builder.branch(body)
    builder.position_at_end(body)
    k, totals = builder.phi(I64), [builder.phi(total.type) for total in sums]
    after = step(k, totals)
    following = builder.add(k, I64(1))
    for phi, first, next_ in zip([k, *totals], [I64(0), *sums], [following, *after], strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(next_, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, depth), body, end)
    builder.position_at_end(end)
    return after


def multiply_add(builder: Any, factor: Any, vector: Any, total: Any) -> Any:
    """total + vector * the float32 that `factor` points to."""
    spread = llvm.splat(builder, builder.load(factor))
    return llvm.call(builder, "llvm.fma.v16f32", FLOATS, [spread, vector, total])


def for_each_count(builder: Any, count: Any, most: int, run: Callable[[int], None]) -> None:
    """A copy of the code that `run` emits for every count from 1 to `most`, and a switch between them."""
    done = builder.append_basic_block("done")
    switch = builder.switch(count, done)
    for rows in range(1, most + 1):
        block = builder.append_basic_block(f"rows.{rows}")
        switch.add_case(I64(rows), block)
        builder.position_at_end(block)
        run(rows)
        builder.branch(done)
    builder.position_at_end(done)


def _widen(builder: Any, stored: Any, dtype: str) -> Any:
    """A vector of weights as float32."""
    if dtype == "float16":
        return builder.fpext(stored, FLOATS)
    if dtype == "bfloat16":
        high = builder.shl(builder.zext(stored, WORDS), llvm.constant(WORDS, 16))
        return builder.bitcast(high, FLOATS)
    return stored


def make_tile(most: int, panels: int, dtype: str, resume: bool = False) -> Callable[..., None]:
    """tile(rows, x, start, stride, weights, depth, out, ahead, pace): out = x @ weights, up to `most` rows;
    with `resume` that is added to what is in out.

    x: flat float32 array; row r starts at start + r * stride. weights: address of `dtype`
    [depth, panels * 16]. out: flat float32 array [rows, panels * 16]. ahead: address of what is worked on
    next: the caches are asked for a line of it with every step, `pace` bytes after the one before.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        count, x, start, stride, address, depth, out, ahead, pace = values
        x_type, out_type = signature.args[1], signature.args[6]
        weights = builder.inttoptr(address, _STORED[dtype].as_pointer())
        following = builder.inttoptr(ahead, ir.IntType(8).as_pointer())

        def columns(k: Any) -> list[Any]:
            first = builder.mul(k, I64(panels))
            places = [builder.gep(weights, [builder.add(first, I64(panel))]) for panel in range(panels)]
            llvm.prefetch(builder, builder.gep(following, [builder.mul(k, pace)]))
            return [_widen(builder, builder.load(place, align=2), dtype) for place in places]

        def run(rows: int) -> None:
            data = context.make_array(x_type)(context, builder, x).data
            starts = [builder.add(start, builder.mul(stride, I64(row))) for row in range(rows)]
            pointers = [builder.gep(data, [start]) for start in starts]

            def step(k: Any, sums: list[Any]) -> list[Any]:
                factors = [builder.gep(pointer, [k]) for pointer in pointers]
                pairs = zip(itertools.product(factors, columns(k)), sums, strict=True)
                return [multiply_add(builder, factor, column, total) for (factor, column), total in pairs]

            places = [
                llvm.place(context, builder, out_type, out, I64(LANES * index))
                for index in range(rows * panels)
            ]
            zero = llvm.constant(FLOATS, 0.0)
            sums = [builder.load(place, align=4) if resume else zero for place in places]
            for place, total in zip(places, accumulate(builder, depth, sums, step), strict=True):
                builder.store(total, place, align=4)

        for_each_count(builder, count, most, run)
        return context.get_dummy_value()

    @intrinsic
    def tile(
        typing: Any,
        rows: Any,
        x: Any,
        start: Any,
        stride: Any,
        weights: Any,
        depth: Any,
        out: Any,
        ahead: Any,
        pace: Any,
    ) -> Any:
        i64 = types.int64
        return types.none(i64, x, i64, i64, i64, i64, out, i64, i64), generate

    return tile
