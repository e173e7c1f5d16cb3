"""Activation buffers that are kept from step to step."""

from __future__ import annotations

import torch

from stretto.roles.executor.buckets import MOST


class Workspace:
    """Named buffers of as many rows as the largest step so far needed; used on one stream only.

    least: rows that a buffer has from the start, so that it stays where it is while no step needs more.
    Buffers that captured steps may have met live on when larger ones take their place.
    """

    def __init__(self, place: torch.device, least: int = 0) -> None:
        self._place, self._least = place, least
        self._buffers: dict[str, torch.Tensor] = {}
        self._outgrown: list[torch.Tensor] = []

    def rows(self, name: str, rows: int, width: int, dtype: torch.dtype) -> torch.Tensor:
        """The first `rows` rows of the buffer `name`, [rows, width], contiguous, contents undefined."""
        buffer = self._buffers.get(name)
        if buffer is None or buffer.shape[0] < rows:
            if buffer is not None and buffer.shape[0] <= MOST:
                self._outgrown.append(buffer)
            room = max(self._least, 1 << (rows - 1).bit_length() if rows else 0)
            buffer = torch.empty(room, width, dtype=dtype, device=self._place)
            self._buffers[name] = buffer
        return buffer[:rows]
