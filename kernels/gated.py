"""Gated activations on the GPU: act(gate) * up, a program for each block of a row.

One pass at memory bandwidth. A decode's few rows are cut into blocks, so that they too fill the GPU.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from stretto.kernels.generation import choose

CONFIGS = {80: {"BLOCK": 1024, "num_warps": 4}}
"""8 elements a thread: one 16-byte access for 16-bit types."""


@triton.jit
def _activate(x: tl.tensor, ACTIVATION: tl.constexpr) -> Any:
    if ACTIVATION == "silu":
        return x / (1.0 + tl.exp(-x))
    if ACTIVATION == "gelu_tanh":  # (1 + tanh(y)) / 2 is the logistic function of 2 y
        y = 1.5957691216057308 * (x + 0.044715 * x * x * x)
        return x / (1.0 + tl.exp(-y))
    return 0.5 * x * (1.0 + tl.math.erf(x * 0.7071067811865476))


@triton.jit
def gated_kernel(
    out: tl.tensor,
    gate_up: tl.tensor,
    width: tl.tensor,
    out_stride: tl.tensor,
    stride: tl.tensor,
    ACTIVATION: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    row, columns = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    at, keep = gate_up + row * stride + columns, columns < width
    gate = tl.load(at, mask=keep, other=0.0).to(tl.float32)
    up = tl.load(at + width, mask=keep, other=0.0).to(tl.float32)
    result = _activate(gate, ACTIVATION) * up
    tl.store(out + row * out_stride + columns, result.to(out.dtype.element_ty), mask=keep)


def gated(out: torch.Tensor, gate_up: torch.Tensor, activation: str) -> None:
    """out = act(gate) * up. out: [T, I]; gate_up: [T, 2 I], elements of a row side by side.

    activation: "silu", "gelu_tanh" or "gelu_erf".
    """
    rows, width = out.shape
    config = choose(CONFIGS)
    grid = (rows, triton.cdiv(width, config["BLOCK"]))
    gated_kernel[grid](out, gate_up, width, out.stride(0), gate_up.stride(0), ACTIVATION=activation, **config)
