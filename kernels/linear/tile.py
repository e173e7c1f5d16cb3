"""The inner loop of the matrix product, as LLVM instructions.

One tile is `rows` rows of x against `panels` panels of 16 weight columns. Every output element is one running sum
over k = 0, 1, 2 ... of fused multiply-adds, so its bits do not depend on the tile it is computed in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from stretto.kernels.simd import LANES

_I64 = ir.IntType(64)
_F32 = ir.FloatType()
_VECTOR = ir.VectorType(_F32, LANES)
_WORDS = ir.VectorType(ir.IntType(32), LANES)
_STORED = {
    "float16": ir.VectorType(ir.HalfType(), LANES),
    "bfloat16": ir.VectorType(ir.IntType(16), LANES),
    "float32": _VECTOR,
}


def _widen(builder: Any, stored: Any, dtype: str) -> Any:
    """A vector of weights as float32."""
    if dtype == "float16":
        return builder.fpext(stored, _VECTOR)
    if dtype == "bfloat16":
        high = builder.shl(builder.zext(stored, _WORDS), ir.Constant(_WORDS, [16] * LANES))
        return builder.bitcast(high, _VECTOR)
    return stored


def _splat(builder: Any, value: Any) -> Any:
    nothing = ir.Constant(_VECTOR, ir.Undefined)
    one = builder.insert_element(nothing, value, ir.IntType(32)(0))
    return builder.shuffle_vector(one, nothing, ir.Constant(_WORDS, [0] * LANES))


def _step(
    builder: Any, k: Any, sums: list[list[Any]], rows: list[Any], weights: Any, dtype: str
) -> list[list[Any]]:
    """The sums after adding column k of x times row k of the packed weights."""
    panels = len(sums[0])
    fma = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(_VECTOR, [_VECTOR] * 3), "llvm.fma.v16f32"
    )
    columns = []
    for panel in range(panels):
        place = builder.gep(weights, [builder.add(builder.mul(k, _I64(panels)), _I64(panel))])
        columns.append(_widen(builder, builder.load(place, align=2), dtype))
    after = []
    for row, row_sums in zip(rows, sums, strict=True):
        x = _splat(builder, builder.load(builder.gep(row, [k])))
        after.append([builder.call(fma, [x, w, total]) for w, total in zip(columns, row_sums, strict=True)])
    return after


def _loop(
    builder: Any, depth: Any, rows: list[Any], panels: int, weights: Any, dtype: str
) -> list[list[Any]]:
    """All sums, after running k from 0 to depth (at least 1)."""
    before, body = builder.block, builder.append_basic_block("k")
    end = builder.append_basic_block("k.end")
    builder.branch(body)
    builder.position_at_end(body)
    k = builder.phi(_I64)
    sums = [[builder.phi(_VECTOR) for _ in range(panels)] for _ in rows]
    after = _step(builder, k, sums, rows, weights, dtype)
    following = builder.add(k, _I64(1))
    k.add_incoming(_I64(0), before)
    k.add_incoming(following, body)
    for phi, value in zip(sum(sums, []), sum(after, []), strict=True):
        phi.add_incoming(ir.Constant(_VECTOR, [0.0] * LANES), before)
        phi.add_incoming(value, body)
    builder.cbranch(builder.icmp_signed("<", following, depth), body, end)
    builder.position_at_end(end)
    return after


def make_tile(most: int, panels: int, dtype: str) -> Callable[..., None]:
    """tile(rows, x, start, stride, weights, depth, out): out[r, :] = x[start + r * stride :][:depth] @ weights.

    rows: 1 .. `most`, each with its own copy of the loop. x: flat float32 array. weights: address of `dtype`
    [depth, panels * 16]. out: flat float32 scratch, [rows, panels * 16].
    """

    def run(builder: Any, rows: int, data: Any, values: Any, scratch: Any) -> None:
        _, _, start, stride, address, depth, _ = values
        pointers = [
            builder.gep(data, [builder.add(start, builder.mul(stride, _I64(row)))]) for row in range(rows)
        ]
        weights = builder.inttoptr(address, _STORED[dtype].as_pointer())
        for index, total in enumerate(sum(_loop(builder, depth, pointers, panels, weights, dtype), [])):
            builder.store(total, builder.gep(scratch, [_I64(index)]), align=4)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        data = context.make_array(signature.args[1])(context, builder, values[1]).data
        scratch = context.make_array(signature.args[6])(context, builder, values[6]).data
        scratch = builder.bitcast(scratch, _VECTOR.as_pointer())
        done = builder.append_basic_block("tile.end")
        switch = builder.switch(values[0], done)
        for rows in range(1, most + 1):
            block = builder.append_basic_block(f"tile.{rows}")
            switch.add_case(_I64(rows), block)
            builder.position_at_end(block)
            run(builder, rows, data, values, scratch)
            builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    @intrinsic
    def tile(
        typing: Any, rows: Any, x: Any, start: Any, stride: Any, weights: Any, depth: Any, out: Any
    ) -> Any:
        i64 = types.int64
        return types.none(i64, x, i64, i64, i64, i64, out), generate

    return tile  # type: ignore[no-any-return]
