"""Rows out of packed weights: what the kernels of all formats share."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from stretto.kernels import llvm
from stretto.kernels.pool import Kernel, arguments, threads_for

GRAIN = 1 << 13
"""Numbers of rows under which one thread gathers them."""
Args = arguments("out blocks index rows depth inner block")


class Packed(Protocol):
    """A [N, K] matrix in blocks, uint8 [groups of outputs, groups of inputs, bytes of a block]."""

    @property
    def blocks(self) -> torch.Tensor: ...
    @property
    def depth(self) -> int: ...


@intrinsic(prefer_literal=True)
def entry(typing: Any, address: Any, index: Any, size: Any) -> Any:
    """The index-th number of so many bytes, a constant, behind an address: float16 or float32, as float32."""
    half = size.literal_value == 2

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        place = builder.add(values[0], builder.mul(values[1], llvm.I64(size.literal_value)))
        kind = ir.HalfType() if half else llvm.F32
        stored = builder.load(builder.inttoptr(place, kind.as_pointer()))
        return builder.fpext(stored, llvm.F32) if half else stored

    return types.float32(types.int64, types.int64, size), generate


def gather_rows(kernel: Kernel, packed: Packed, index: torch.Tensor) -> torch.Tensor:
    """Rows of the matrix as float32 [n, K], by a kernel of `Args`; index: integers [n], each in [0, N)."""
    index = index.int().contiguous()
    out = torch.empty(len(index), packed.depth)
    kernel(
        threads_for(out.numel(), GRAIN),
        out.data_ptr(),
        packed.blocks.data_ptr(),
        index.data_ptr(),
        len(index),
        packed.depth,
        *packed.blocks.shape[1:],
    )
    return out
