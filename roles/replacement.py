"""Live replacement: another process takes a role's place, and no request notices.

A gateway's successor starts at the spare place, beside it and on the same listening socket; when it serves,
the old one gets word to finish what it has. Any other role's successor imports its code first, while the old
one still works; then they change places as at a death, which is why nothing is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from stretto.roles import config as configs
from stretto.roles import graph
from stretto.roles import messages as m
from stretto.roles.actor import MAX_CONTROL_BYTES
from stretto.roles.child import Child
from stretto.roles.config import Config
from stretto.roles.process import Process
from stretto.shm.board import State

_decode = msgspec.msgpack.Decoder(m.ToSupervisor).decode


class Replacer:
    """Replaces processes one after another, in the order asked for."""

    def __init__(
        self,
        config: Config,
        children: Mapping[str, Child],
        start: Callable[[Child], None],
        end: Callable[[Child, State, float], Awaitable[None]],
        say: Callable[[str], None],
    ) -> None:
        """`start` fills a place; `end` takes a child through the ladder and returns when it is gone."""
        self._config, self._children = config, children
        self._start, self._end, self._say = start, end, say
        self._queue: list[str] = []
        self._task: asyncio.Task[None] | None = None

    def add(self, role: str, index: int | None) -> None:
        """Replace this process, or all of this role."""
        for child in self._children.values():
            wanted = child.role == role and index in (None, child.index) and child.state is State.READY
            if wanted and child.name not in self._queue:
                self._queue.append(child.name)
        if self._queue and self._task is None:
            self._task = asyncio.create_task(self._work())

    def cancel(self) -> None:
        """Replace nothing more."""
        self._queue.clear()

    async def _work(self) -> None:
        while self._queue:
            child = self._children[self._queue.pop(0)]
            if child.state is State.READY:  # else it has died, and is being replaced anyway
                replace = self._relieve if graph.listens(child.role) else self._exchange
                await replace(child)
        self._task = None

    async def _relieve(self, child: Child) -> None:
        """Start a successor at a spare place, then let the old one finish."""
        spare = next(c for c in self._children.values() if c.role == child.role and not c.alive)
        self._say(f"{child.name} is being replaced by {spare.name}")
        spare.on_trial = True
        self._start(spare)
        await spare.settled()
        if spare.state is State.READY and child.state is State.READY:
            await self._end(child, State.RETIRING, self._config.grace)

    async def _exchange(self, child: Child) -> None:
        """Load a successor, then change places."""
        self._say(f"{child.name} is being replaced")
        successor = await self._loaded(child.role)
        if successor is None:
            self._say(f"{child.name} was not replaced: its successor did not start")
            return
        if child.state is not State.READY:  # it died meanwhile, and has a successor already
            _dismiss(successor)
            return
        child.successor = successor
        await self._end(child, State.STOPPING, 0.0)
        await child.settled()

    async def _loaded(self, role: str) -> Process | None:
        """A process that waits for its `Boot`; None where it died or took too long."""
        loop = asyncio.get_running_loop()
        try:
            process = Process(role)
        except OSError:
            return None
        process.send(m.Load(configs.encode(self._config)))
        try:
            data = await asyncio.wait_for(
                loop.sock_recv(process.control, MAX_CONTROL_BYTES), self._config.ready_timeout
            )
        except (TimeoutError, OSError):
            data = b""
        if data and isinstance(_decode(data), m.Loaded):
            return process
        _dismiss(process)
        return None


def _dismiss(process: Process) -> None:
    process.kill()
    process.reap()
