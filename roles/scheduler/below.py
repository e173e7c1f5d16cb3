"""What lies below the device's pool, and what it costs to go there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Below:
    """Host memory and the file store; times are seconds per page."""

    host_pages: int = 0
    """0: there is nothing below the device."""
    disk: bool = False
    write: Literal["back", "through", "selective"] = "through"
    """When a page is copied to the host: when the device evicts it, when it is computed, or when it is used a
    second time."""
    copy_seconds: float = 0.0
    """Between device and host."""
    load_seconds: float = 0.0
    """From the disk to the host."""
    compute_seconds: float = math.inf
    """To compute a page's tokens anew, in a prompt."""

    @property
    def copy_pays(self) -> bool:
        """Whether a page that is on the host gets to the device sooner by a copy than by being computed."""
        return self.copy_seconds < self.compute_seconds

    @property
    def load_pays(self) -> bool:
        """The same for a page on disk."""
        return self.load_seconds + self.copy_seconds < self.compute_seconds


NOTHING_BELOW = Below()
