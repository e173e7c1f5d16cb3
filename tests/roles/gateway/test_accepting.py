"""Connections come in a few at a time, and leave the process the files it needs."""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import cast

import pytest
import uvloop

from stretto.roles.gateway.accepting import OWN_FILES, PER_TURN, Acceptor, room

CROWD = 2 * PER_TURN + 1


class Greeter(asyncio.Protocol):
    """Says hello and hangs up."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(b"hello")
        transport.close()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=CROWD) as listener:
        yield listener


async def greeting(listener: socket.socket) -> bytes:
    reader, writer = await asyncio.open_connection(*listener.getsockname())
    data = await reader.read()
    writer.close()
    return data


def test_a_crowd_is_taken_in_several_turns(listener: socket.socket) -> None:
    sizes = [0]

    class Counted(Greeter):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            sizes[-1] += 1
            super().connection_made(transport)

    async def watch() -> None:
        while sum(sizes) < CROWD:
            sizes.append(0)
            await asyncio.sleep(0)

    async def main() -> None:
        acceptor = Acceptor(listener, Counted)
        await watch()
        acceptor.close()

    with ExitStack() as crowd:
        for _ in range(CROWD):
            crowd.enter_context(socket.create_connection(listener.getsockname()))
        uvloop.run(main())
    assert max(sizes) == PER_TURN


def test_without_files_it_waits_until_there_are_some(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [OSError(errno.EMFILE, "planted")]
    accept = socket.socket.accept

    def poor(sock: socket.socket) -> tuple[socket.socket, object]:
        if failures:
            raise failures.pop()
        return accept(sock)

    async def main() -> None:
        acceptor = Acceptor(listener, Greeter)
        monkeypatch.setattr(socket.socket, "accept", poor)
        assert await greeting(listener) == b"hello"
        acceptor.close()

    uvloop.run(main())
    assert not failures


def test_a_closed_one_takes_nobody(listener: socket.socket) -> None:
    async def main() -> None:
        address = listener.getsockname()
        acceptor = Acceptor(listener, Greeter)
        acceptor.close()
        acceptor.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*address)

    uvloop.run(main())


@pytest.mark.parametrize(
    ("files", "there"),
    [(resource.RLIM_INFINITY, 5000), (1 << 20, 5000), (1024, 1024 - OWN_FILES), (64, PER_TURN)],
)
def test_there_is_room_for_what_the_process_may_open(
    files: int, there: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (files, files))
    assert room(5000) == there
