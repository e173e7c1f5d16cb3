"""Memory that a kernel works in, kept from call to call."""

from __future__ import annotations

import threading
from contextvars import ContextVar

import torch

recorded_memory: ContextVar[list[torch.Tensor] | None] = ContextVar("recorded_memory", default=None)
"""Where buffers are added that recorded calls work in, so that they live as long as the recording."""


class Buffers(threading.local):
    """Each thread that calls has its own until it ends: one for every power of two, which stays in place."""

    def __init__(self) -> None:
        self._by_size: dict[int, torch.Tensor] = {}

    def least(self, size: int) -> torch.Tensor:
        """A buffer of at least `size` bytes, whose contents last until the next call."""
        power = max(size - 1, 0).bit_length()
        if power not in self._by_size:
            self._by_size[power] = torch.empty(1 << power, dtype=torch.uint8)
        buffer = self._by_size[power]
        if (kept := recorded_memory.get()) is not None:
            kept.append(buffer)
        return buffer
