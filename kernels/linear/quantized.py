"""Weights of 8 or 4 bits: how they are rounded, and how they lie in memory.

Each output has a scale for every group of consecutive inputs. Of 8 bits, weights are symmetric: scale * (byte
- 128). Of 4 bits they have a minimum too: scale * nibble + minimum, as in GGUF's Q4_1, whose values on groups
of 32 they reproduce. Scales and minima are float16, and weights are rounded to what these can say.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from stretto.kernels.dot import block_bytes


@dataclass(frozen=True)
class Format:
    """How the weights of a layer are stored."""

    bits: int
    group: int
    """Consecutive inputs that share a scale."""


FORMATS = {"int8": Format(8, 64), "int4": Format(4, 32)}


@dataclass(frozen=True)
class Packed:
    """A quantized [N, K] matrix: `blocks` uint8 [ceil(N / columns), ceil(K / group), bytes of a block].

    A block has the scales of `columns` outputs, then their minima (4 bits), then the weights as bytes
    [steps, columns, 4]: four neighbours of K for each output. A byte of 4 bits holds a weight in its low half
    and the one four places on in its high half.
    """

    blocks: torch.Tensor
    format: Format
    width: int
    depth: int
    columns: int


def rows(packed: Packed, index: torch.Tensor) -> torch.Tensor:
    """Rows of the matrix as float32 [n, K]; index: integers [n], each in [0, N)."""
    fmt, columns = packed.format, packed.columns
    blocks = packed.blocks[index // columns]
    n, groups, size = blocks.shape
    head = size - columns * fmt.group * fmt.bits // 8
    every, at = torch.arange(n), index % columns
    tables = blocks[:, :, :head].contiguous().view(torch.float16).view(n, groups, -1, columns)
    scale, *minimum = tables[every, :, :, at].float().split(1, dim=-1)
    stored = blocks[:, :, head:].view(n, groups, -1, columns, 4)[every, :, :, at]
    if fmt.bits == 8:
        values = scale * (stored.flatten(2).float() - 128)
    else:
        nibbles = torch.stack([stored & 15, stored >> 4], dim=3).flatten(2).float()
        values = scale * nibbles + minimum[0]
    return values.flatten(1)[:, : packed.depth]


def pack(weight: torch.Tensor, fmt: Format, columns: int) -> Packed:
    """Quantize weight [N, K], of any float type, for a kernel that computes `columns` outputs at a time."""
    width, depth = weight.shape
    groups, wide = -(-depth // fmt.group), -(-width // columns)
    blocks = torch.empty(wide, groups, block_bytes(columns, fmt.bits, fmt.group), dtype=torch.uint8)
    some = max(1, AT_ONCE // columns)
    for first in range(0, wide, some):
        part = weight[first * columns : (first + some) * columns].float()
        _pack_part(blocks[first : first + some], part, fmt, columns)
    return Packed(blocks, fmt, width, depth, columns)


AT_ONCE = 4096
"""Outputs quantized at a time, so that the float32 copies stay small."""


def _pack_part(blocks: torch.Tensor, weight: torch.Tensor, fmt: Format, columns: int) -> None:
    wide, groups, _ = blocks.shape
    padding = (0, groups * fmt.group - weight.shape[1], 0, wide * columns - len(weight))
    grouped = F.pad(weight, padding).view(wide, columns, groups, fmt.group)
    values, tables = (_round8 if fmt.bits == 8 else _round4)(grouped)
    quads = values.view(wide, columns, groups, -1, 4).permute(0, 2, 3, 1, 4)
    if fmt.bits == 4:
        quads = quads[:, :, 0::2] | (quads[:, :, 1::2] << 4)
    heads = torch.stack(tables).permute(1, 3, 0, 2).contiguous().view(torch.uint8)
    torch.cat([heads.flatten(2), quads.flatten(2)], dim=2, out=blocks)


def _scale(span: torch.Tensor, steps: int) -> torch.Tensor:
    """float16 [...] so that `steps` of it make the span; 1 where the span is nothing."""
    scale = (span / steps).half()
    return torch.where(scale == 0, torch.ones_like(scale), scale)


def _round8(grouped: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    scale = _scale(grouped.abs().amax(-1), 127)
    steps = (grouped / scale.float()[..., None]).round().clamp(-127, 127)
    return (steps + 128).to(torch.uint8), [scale]


def _round4(grouped: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    minimum = grouped.amin(-1).half()
    scale = _scale(grouped.amax(-1) - minimum.float(), 15)
    steps = ((grouped - minimum.float()[..., None]) / scale.float()[..., None]).round().clamp(0, 15)
    return steps.to(torch.uint8), [scale, minimum]


def round_rows(x: torch.Tensor, group: int) -> torch.Tensor:
    """What the kernel makes of activations, float32 [T, K]: 8 bits, one scale for each row and group."""
    padded = F.pad(x, (0, -x.shape[1] % group)).view(len(x), -1, group)
    largest = padded.abs().amax(-1, keepdim=True)
    scale, most = largest / 127, torch.full_like(largest, 127)
    inverse = torch.where(largest == 0, 0, most / largest)
    return (scale * (padded * inverse).round()).flatten(1)[:, : x.shape[1]]
