"""Servers that answer as they are told: one canned HTTP answer, or a script of WebSocket frames."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, unix_serve

from stretto.roles.client.address import Address, parse

Frames = Callable[[str, dict[str, Any]], Iterator[dict[str, Any] | None]]


class Http:
    """What it was asked, and on how many connections."""

    def __init__(self) -> None:
        self.connections = 0
        self.heads: list[bytes] = []
        self.bodies: list[dict[str, Any]] = []


@asynccontextmanager
async def _http_server(path: Path, answer: bytes) -> AsyncIterator[tuple[Address, Http]]:
    """Every request gets `answer`; empty: the connection is closed instead."""
    seen = Http()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                seen.heads.append(head)
                seen.bodies.append(json.loads(await reader.readexactly(length)))
                writer.write(answer)
                if not answer:
                    break
        except asyncio.IncompleteReadError:
            pass
        writer.close()

    socket = path / "http.sock"
    async with await asyncio.start_unix_server(serve, socket):
        yield parse(uds=str(socket)), seen


@asynccontextmanager
async def _socket_server(path: Path, frames: Frames) -> AsyncIterator[Address]:
    """Sends what `frames(id, request)` yields for each `generate`; None closes the socket."""

    async def serve(socket: ServerConnection) -> None:
        async for message in socket:
            asked = json.loads(message)
            for frame in frames(asked["id"], asked["request"]):
                if frame is None:
                    await socket.close()
                    return
                await socket.send(json.dumps(frame))

    uds = str(path / "ws.sock")
    async with unix_serve(serve, uds):
        yield parse(uds=uds)


@pytest.fixture
def http_server() -> Callable[..., Any]:
    """Context manager: (directory, answer) to the server's address, and what it has seen."""
    return _http_server


@pytest.fixture
def socket_server() -> Callable[..., Any]:
    """Context manager: (directory, frames) to the server's address."""
    return _socket_server
