"""Linear layers whose rows never depend on the batch."""

from __future__ import annotations

import torch

from stretto.kernels.linear import cpu, reference

__all__ = ["Linear"]


class Linear:
    """y = x weight^T + bias, in float32 on the CPU.

    weight: [N, K] as stored (float16, bfloat16 or float32) and kept in that type, packed: the caller may drop its
    own copy. bias: [N] or None. On the CPU the bits of a row of y depend on that row of x and the weights alone,
    for any number of rows.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self.width, self.depth = weight.shape
        self._on_cpu = weight.is_cpu and weight.dtype in cpu.DTYPES
        self._weight = cpu.pack(weight) if self._on_cpu else weight
        self._bias = None if bias is None else bias.float().contiguous()

    def __call__(self, x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """x: float32 [T, K], rows may be strided. Returns float32 [T, N]: `out`, or a new tensor."""
        if out is None:
            out = x.new_empty(x.shape[0], self.width)
        if self._on_cpu:
            cpu.multiply(out, x, self._weight, self._bias)
        else:
            out.copy_(reference.linear(x, self._weight, self._bias))
        return out

    def rows(self, index: torch.Tensor) -> torch.Tensor:
        """Rows of the weight, float32 [n, K]: an embedding table that shares this layer's memory.

        index: integers [n], each in [0, N).
        """
        if not self._on_cpu:
            return self._weight[index].float()
        return self._weight[index // cpu.COLUMNS, :, index % cpu.COLUMNS].float()
