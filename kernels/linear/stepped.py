"""Weights as a quantized file holds them: how they are told, and how they lie in memory.

A weight is scale * step + minimum, with a scale and a minimum for every group of consecutive
inputs and a step of 4 or 8 bits: what llama.cpp's Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K and Q6_K say.
Nothing is rounded but the sum, to float32, which is what the files mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch


class Format(NamedTuple):
    """How the steps of a matrix are told."""

    bits: int
    group: int
    """Consecutive inputs that share a scale."""
    table: torch.dtype
    """Of scales and minima: float16 or float32."""

    @property
    def name(self) -> str:
        """Of the kernels that it takes, in `KERNELS`."""
        return f"{self.bits}-bit steps, {str(self.table).removeprefix('torch.')}"


KERNELS = {
    f"{bits}-bit steps, {table}": (bits, size)
    for bits in (4, 8)
    for table, size in (("float16", 2), ("float32", 4))
}
"""What kernels there are for steps: bits of a step, and bytes of a scale or minimum, by name."""


@dataclass(frozen=True)
class Stepped:
    """A matrix [N, K] of steps. Raises ValueError where the shapes are of no such matrix.

    words: int32 [N, K * bits / 32], step k of a word at bit `bits` * k. scales, minima: [N, K / group],
    float16 or float32.
    """

    words: torch.Tensor
    scales: torch.Tensor
    minima: torch.Tensor
    depth: int

    def __post_init__(self) -> None:
        groups, words = self.scales.shape[1], self.words.shape[1]
        whole = groups and self.depth % groups == 0 and words % groups == 0
        if not whole or words * 32 not in (4 * self.depth, 8 * self.depth):
            raise ValueError(f"{words} words and {groups} groups of steps for {self.depth} inputs")

    @property
    def format(self) -> Format:
        """How they are told."""
        bits, group = self.words.shape[1] * 32 // self.depth, self.depth // self.scales.shape[1]
        return Format(bits, group, self.scales.dtype)

    def __len__(self) -> int:
        return len(self.words)


def stack(parts: Sequence[Stepped]) -> Stepped:
    """One matrix with the outputs of all, which are in one format."""
    words, scales, minima = (
        torch.cat([getattr(part, name) for part in parts]) for name in ("words", "scales", "minima")
    )
    return replace(parts[0], words=words, scales=scales, minima=minima)


@dataclass(frozen=True)
class Packed:
    """A matrix [N, K] of steps, packed: `blocks` uint8 [ceil(N / columns), K / group, bytes of a block]; see
    `kernels.steps`.
    """

    blocks: torch.Tensor
    format: Format
    width: int
    depth: int


def pack(matrix: Stepped, columns: int) -> Packed:
    """For a kernel that computes `columns` outputs at a time."""
    form, width = matrix.format, len(matrix)
    inner, wide = matrix.depth // form.group, -(-width // columns)

    def by_columns(values: torch.Tensor) -> torch.Tensor:
        filled = values.new_zeros(wide * columns, values.shape[1])
        filled[:width] = values
        grouped = filled.view(wide, columns, inner, -1).permute(0, 2, 3, 1).contiguous()
        return grouped.view(wide, inner, -1).view(torch.uint8)

    parts = [by_columns(part) for part in (matrix.scales, matrix.minima, matrix.words)]
    blocks = torch.cat(parts, dim=2)
    return Packed(blocks, form, width, matrix.depth)


def weights(matrix: Stepped) -> torch.Tensor:
    """The matrix as float32 [N, K]."""
    form = matrix.format
    shifts = torch.arange(0, 32, form.bits, dtype=torch.int32)
    steps = (matrix.words[:, :, None] >> shifts) & (2**form.bits - 1)
    steps = steps.view(len(matrix), -1, form.group).double()
    values = matrix.scales.double()[:, :, None] * steps + matrix.minima.double()[:, :, None]
    return values.float().view(len(matrix), matrix.depth)
