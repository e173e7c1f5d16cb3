"""The inner loop of the matrix product, as LLVM instructions.

One tile is a few rows of x against `panels` panels of 16 weight columns. Every output element is one running
sum over k = 0, 1, 2 ... of fused multiply-adds, so its bits do not depend on the tile it is computed in.
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
Sums = list[list[Any]]
"""Running sums by row and panel, each a vector of 16 columns."""


def _widen(builder: Any, stored: Any, dtype: str) -> Any:
    """A vector of weights as float32."""
    if dtype == "float16":
        return builder.fpext(stored, FLOATS)
    if dtype == "bfloat16":
        high = builder.shl(builder.zext(stored, WORDS), llvm.constant(WORDS, 16))
        return builder.bitcast(high, FLOATS)
    return stored


def _step(builder: Any, k: Any, sums: Sums, rows: list[Any], weights: Any, dtype: str) -> Sums:
    """The sums after adding column k of x times row k of the packed weights."""
    panels = len(sums[0])
    columns = []
    for panel in range(panels):
        place = builder.gep(weights, [builder.add(builder.mul(k, I64(panels)), I64(panel))])
        columns.append(_widen(builder, builder.load(place, align=2), dtype))
    after = []
    for row, totals in zip(rows, sums, strict=True):
        x = llvm.splat(builder, builder.load(builder.gep(row, [k])))
        pairs = zip(columns, totals, strict=True)
        after.append([llvm.call(builder, "llvm.fma.v16f32", FLOATS, [x, w, total]) for w, total in pairs])
    return after


def _loop(builder: Any, depth: Any, rows: list[Any], panels: int, weights: Any, dtype: str) -> Sums:
    """All sums, after running k from 0 to depth (at least 1)."""
    before, body = builder.block, builder.append_basic_block("k")
    end = builder.append_basic_block("k.end")
    builder.branch(body)
    builder.position_at_end(body)
    k = builder.phi(I64)
    sums = [[builder.phi(FLOATS) for _ in range(panels)] for _ in rows]
    after = _step(builder, k, sums, rows, weights, dtype)
    following = builder.add(k, I64(1))
    k.add_incoming(I64(0), before)
    k.add_incoming(following, body)
    for phi, value in zip(itertools.chain(*sums), itertools.chain(*after), strict=True):
        phi.add_incoming(llvm.constant(FLOATS, 0.0), before)
        phi.add_incoming(value, body)
    builder.cbranch(builder.icmp_signed("<", following, depth), body, end)
    builder.position_at_end(end)
    return after


def make_tile(most: int, panels: int, dtype: str) -> Callable[..., None]:
    """tile(rows, x, start, stride, weights, depth, out): multiply `rows` rows of x with one group of columns.

    rows: 1 .. `most`, each with its own copy of the loop. x: flat float32 array; row r starts at start + r *
    stride. weights: address of `dtype` [depth, panels * 16]. out: flat float32 array [rows, panels * 16].
    """

    def run(builder: Any, rows: int, data: Any, values: Any, out: Any) -> None:
        _, _, start, stride, address, depth, _ = values
        starts = [builder.add(start, builder.mul(stride, I64(row))) for row in range(rows)]
        pointers = [builder.gep(data, [start]) for start in starts]
        weights = builder.inttoptr(address, _STORED[dtype].as_pointer())
        sums = _loop(builder, depth, pointers, panels, weights, dtype)
        for index, total in enumerate(itertools.chain(*sums)):
            builder.store(total, builder.gep(out, [I64(index)]), align=4)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        data = context.make_array(signature.args[1])(context, builder, values[1]).data
        out = llvm.place(context, builder, signature.args[6], values[6], I64(0))
        done = builder.append_basic_block("tile.end")
        switch = builder.switch(values[0], done)
        for rows in range(1, most + 1):
            block = builder.append_basic_block(f"tile.{rows}")
            switch.add_case(I64(rows), block)
            builder.position_at_end(block)
            run(builder, rows, data, values, out)
            builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    @intrinsic
    def tile(
        typing: Any, rows: Any, x: Any, start: Any, stride: Any, weights: Any, depth: Any, out: Any
    ) -> Any:
        i64 = types.int64
        return types.none(i64, x, i64, i64, i64, i64, out), generate

    return tile
