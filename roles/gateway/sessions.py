"""The WebSockets that are open, for the time when this gateway is replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

Retire = Callable[[], Awaitable[None]]


class Sessions:
    """How to send each client to another gateway."""

    def __init__(self, resume_seconds: float = 0.0) -> None:
        self.resume_seconds = resume_seconds
        """How long a stream waits for a client that lost its socket."""
        self.retiring = False
        """Another gateway takes over."""
        self._retire: dict[object, Retire] = {}

    @contextmanager
    def open(self, retire: Retire) -> Iterator[None]:
        """While one is open."""
        name = object()
        self._retire[name] = retire
        try:
            yield
        finally:
            del self._retire[name]

    async def retire(self) -> None:
        """Send all clients away, each when what it has can be resumed elsewhere."""
        self.retiring = True
        await asyncio.gather(*(retire() for retire in list(self._retire.values())))
