"""Many small host arrays as one buffer, so that a step's inputs cross to the device in one copy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

ALIGNMENT = 16
"""Bytes; enough for a vector load of any element type."""


def offsets(arrays: Sequence[np.ndarray]) -> tuple[list[int], int]:
    """Byte offset of each array in one buffer, and the buffer's size."""
    starts, end = [], 0
    for array in arrays:
        starts.append(end)
        end += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    return starts, end


def pack(buffer: torch.Tensor, arrays: Sequence[np.ndarray], starts: Sequence[int]) -> None:
    """Write the arrays into a uint8 host buffer."""
    target = buffer.numpy()
    for array, start in zip(arrays, starts, strict=True):
        target[start : start + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def unpack(buffer: torch.Tensor, arrays: Sequence[np.ndarray], starts: Sequence[int]) -> list[torch.Tensor]:
    """Views of a uint8 buffer with the types and shapes of the arrays packed into its like."""
    return [
        buffer[start : start + array.nbytes].view(torch.from_numpy(array[:0]).dtype).view(array.shape)
        for array, start in zip(arrays, starts, strict=True)
    ]
