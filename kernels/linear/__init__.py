"""Linear layers whose rows never depend on the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from stretto.kernels.late import Late
from stretto.kernels.linear import reference
from stretto.kernels.linear.stepped import Stepped

if TYPE_CHECKING:
    from stretto.kernels.pool import Kernel

__all__ = ["Linear"]

cpu, integer, quantized, rounding, widened = (
    Late(f"stretto.kernels.linear.{name}") for name in ("cpu", "integer", "quantized", "rounding", "widened")
)


class Linear:
    """y = x weight^T + bias.

    weight: [N, K] float16, bfloat16 or float32; on the CPU it is kept in that type, or in the one of
    `quantized.FORMATS` that `quantization` names, packed, and the caller may drop its own copy. Or steps, on
    the CPU alone, with the bits of the float32 weights that they mean. bias: [N] or None. On the CPU x and y
    are float32, and the bits of a row of y depend on that row of x and the weights alone, for any number of
    rows; elsewhere all types are the weight's, and nothing is quantized.
    """

    def __init__(
        self, weight: torch.Tensor | Stepped, bias: torch.Tensor | None = None, quantization: str = "none"
    ) -> None:
        self._width = len(weight)
        packed = isinstance(weight, Stepped) or (weight.is_cpu and weight.dtype in cpu.DTYPES)
        self._bias = bias.float().contiguous() if packed and bias is not None else bias
        self._weight: Any = weight
        self._multiply: Callable[..., None] = reference.multiply
        self._rows: Callable[[Any, torch.Tensor], torch.Tensor] = reference.rows
        if isinstance(weight, Stepped):
            self._weight = widened.pack(weight)
            self._multiply, self._rows = widened.multiply, widened.rows
        elif packed and quantization != "none":
            self._weight = rounding.pack(weight, quantized.FORMATS[quantization])
            self._multiply, self._rows = integer.multiply, integer.rows
        elif packed:
            self._weight = cpu.pack(weight)
            self._multiply, self._rows = cpu.multiply, cpu.rows

    @property
    def kernels(self) -> dict[str, Kernel]:
        """What a call computes with, by name; nothing where torch does."""
        if self._multiply is reference.multiply:
            return {}
        if self._multiply is cpu.multiply:
            dtype = self._weight.dtype
            return {f"linear {str(dtype).removeprefix('torch.')}": cpu.product(dtype)}
        fmt = self._weight.format
        if self._multiply is widened.multiply:
            kernels: dict[str, Kernel] = widened.kernels(fmt.name)
            return kernels
        name = f"int{fmt.bits}"
        return {f"linear {name}": integer.product(fmt), f"rows of {name}": integer.gather(fmt)}

    def __call__(self, x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """x: [T, K], rows may be strided. Returns [T, N]: `out`, which must not overlap x, or a new one."""
        if out is None:
            out = x.new_empty(len(x), self._width)
        self._multiply(out, x, self._weight, self._bias)
        return out

    def rows(self, index: torch.Tensor) -> torch.Tensor:
        """Rows of the weight, [n, K]: an embedding table that shares this layer's memory.

        index: integers [n], each in [0, N). In the type of the weight, or float32 where it is packed in fewer
        bits.
        """
        return self._rows(self._weight, index)
