"""Linear layers whose rows never depend on the batch."""

from __future__ import annotations

import torch

from stretto.kernels.linear import cpu, reference

__all__ = ["Linear"]


class Linear:
    """y = x weight^T + bias.

    weight: [N, K] float16, bfloat16 or float32; on the CPU it is kept in that type, packed, and the caller
    may drop its own copy. bias: [N] or None. On the CPU x and y are float32, and the bits of a row of y
    depend on that row of x and the weights alone, for any number of rows; elsewhere all types are the
    weight's.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self._width = len(weight)
        self._packed = weight.is_cpu and weight.dtype in cpu.DTYPES
        self._weight = cpu.pack(weight) if self._packed else weight
        self._bias = bias.float().contiguous() if self._packed and bias is not None else bias

    def __call__(self, x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """x: [T, K], rows may be strided. Returns [T, N]: `out`, which must not overlap x, or a new one."""
        if out is None:
            out = x.new_empty(len(x), self._width)
        multiply = cpu.multiply if self._packed else reference.multiply
        multiply(out, x, self._weight, self._bias)
        return out

    def rows(self, index: torch.Tensor) -> torch.Tensor:
        """Rows of the weight, [n, K] in its type: an embedding table that shares this layer's memory.

        index: integers [n], each in [0, N).
        """
        if not self._packed:
            return self._weight[index]
        return self._weight[index // cpu.COLUMNS, :, index % cpu.COLUMNS]
