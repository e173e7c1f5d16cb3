"""Takes connections off a listening socket, a few at each turn of the loop.

An asyncio server takes all that wait at once. In a flood those who are served would wait for that, and the
files that this process may open would be used up before the first of the crowd is refused: zmq, which needs
one for each role that comes back, would end the process.
"""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable

PER_TURN = 64
OWN_FILES = 192
"""Kept for what is no connection of a client, and for a turn's connections that are about to be refused."""
PAUSE_SECONDS = 0.1
"""How long none are taken when there are no files left after all."""


def room(wanted: int) -> int:
    """How many connections this process can hold, `wanted` at most."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if files == resource.RLIM_INFINITY else min(wanted, max(PER_TURN, files - OWN_FILES))


class Acceptor:
    """Gives each connection a protocol that `factory` makes; owns the socket, which listens."""

    def __init__(self, listener: socket.socket, factory: Callable[[], asyncio.Protocol]) -> None:
        self._listener, self._factory = listener, factory
        self._loop = asyncio.get_running_loop()
        self._starting: set[asyncio.Task[object]] = set()
        listener.setblocking(False)
        self._listen()

    def close(self) -> None:
        """Take no more; once more does nothing."""
        if self._listener.fileno() >= 0:
            self._loop.remove_reader(self._listener)
            self._listener.close()

    def _listen(self) -> None:
        if self._listener.fileno() >= 0:
            self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(PER_TURN):
            try:
                connection, _address = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError:
                self._loop.remove_reader(self._listener)
                self._loop.call_later(PAUSE_SECONDS, self._listen)
                return
            self._begin(connection)

    def _begin(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = self._loop.create_task(self._loop.connect_accepted_socket(self._factory, connection))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)
