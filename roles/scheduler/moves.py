"""Moves between the tiers that are to be sent, numbered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from stretto.roles import messages as m
from stretto.roles.scheduler.pages import Ints


class Moves:
    """`number` is that of the last one."""

    def __init__(self) -> None:
        self.number = 0
        self._unsent: list[m.Move] = []

    def add(
        self,
        kind: Literal["out", "in", "save", "load"],
        host: Sequence[int],
        device: Ints | None = None,
        keys: bytes = b"",
    ) -> int:
        """One more, as in `messages.Move`; returns its number."""
        self.number += 1
        pages = b"" if device is None else device.astype(np.int32).tobytes()
        self._unsent.append(m.Move(self.number, kind, np.array(host, np.int32).tobytes(), pages, keys))
        return self.number

    def take(self) -> list[m.Move]:
        """Those since the last call."""
        unsent, self._unsent = self._unsent, []
        return unsent
