"""Where the results of a step reach the host."""

from __future__ import annotations

import torch

from stretto.roles.executor.device import Device, Event, Stream


class Landing:
    """Buffers for one step at a time: its tokens, and details where it has any.

    A step may be given the landing once the host has read the results of the one before.
    """

    def __init__(self, device: Device, slots: int) -> None:
        self._device = device
        self.tokens = device.output(slots, torch.int32)
        self.details = device.output(0, torch.int32)

    def reserve(self, details: int) -> None:
        """Make room for so many numbers of details."""
        if self.details.tensor.numel() < details:
            self.details = self._device.output(2 * details, torch.int32)

    def fetch(self, stream: Stream, landed: Event, detailed: bool) -> None:
        """Bring to the host what `stream` was given to write; `landed` is done when all of it is there."""
        if detailed:
            self.details.fetch(stream, self._device.event())
        self.tokens.fetch(stream, landed)
