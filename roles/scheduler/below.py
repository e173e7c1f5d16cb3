"""What lies below the device's pool, and what it costs to go there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from stretto.roles import messages as m


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
    compute_seconds: float = math.inf
    """To compute a page's tokens anew, in a prompt."""

    @property
    def copy_pays(self) -> bool:
        """Whether a page that is on the host gets to the device sooner by a copy than by being computed."""
        return self.copy_seconds < self.compute_seconds


NOTHING_BELOW = Below()


def below_of(hello: m.Hello, page_size: int, write: Literal["back", "through", "selective"]) -> Below:
    """What an executor offers. A rate that it does not know is taken for the best, of copies, or worst, of
    computing.
    """
    return Below(
        host_pages=hello.host_pages,
        disk=hello.disk,
        write=write,
        copy_seconds=1 / hello.copy_rate if hello.copy_rate else 0.0,
        compute_seconds=page_size / hello.prefill_rate if hello.prefill_rate else math.inf,
    )
