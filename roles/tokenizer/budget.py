"""What one rendering of a template may take and make."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import jinja2

MAX_SECONDS = 1.0
"""Of the thread's processor time, so that a busy machine refuses nothing. Templates take 0.1 ms."""
MAX_SIZE = 1 << 26
"""Characters and list items made in one rendering: eight times the largest body, of which a template that
appends to a text in a loop makes many."""

_LOOK_EVERY = 64
"""Passes between looks at the clock, which takes as long as one of the shortest passes."""
_SIZED = (str, list, tuple)


class Exceeded(jinja2.TemplateError):
    """The template takes too long or makes too much."""


class Budget:
    """What is left to one rendering."""

    __slots__ = ("_passes", "_size", "_until")

    def __init__(self) -> None:
        self._passes, self._size = 0, MAX_SIZE
        self._until: float | None = None  # not asked of the kernel before the first look

    def tick(self) -> None:
        """Once for each pass of a block."""
        self._passes += 1
        if not self._passes % _LOOK_EVERY:
            self._look()

    def _look(self) -> None:
        now = time.thread_time()
        if self._until is None:
            self._until = now + MAX_SECONDS
        if now > self._until:
            raise Exceeded(f"it takes more than {MAX_SECONDS:g} s")

    def foresee(self, size: int) -> None:
        """So much would be made: raises `Exceeded` where that is too much, spends nothing."""
        if size > self._size:
            raise Exceeded(f"it makes more than {MAX_SIZE} characters")

    def spend(self, size: int) -> None:
        """So much is about to be made, or was made."""
        self.foresee(size)
        self._size -= size

    def made(self, value: Any) -> Any:
        """Spend what this value takes; returns it."""
        if isinstance(value, _SIZED):
            self.spend(len(value))
        return value

    def text(self, value: Any) -> str:
        """What is printed of a value."""
        return value if type(value) is str else str(self.made(str(value)))

    def concat(self, pieces: Iterable[str]) -> str:
        """Texts put together."""
        pieces = list(pieces)
        self.spend(sum(map(len, pieces)))
        return "".join(pieces)

    def join(self, values: Iterable[Any], between: str = "") -> str:
        """The texts of values, with another between them."""
        pieces = list(map(self.text, values))
        self.foresee(sum(map(len, pieces)) + len(between) * (len(pieces) - 1))
        return between.join(pieces)
