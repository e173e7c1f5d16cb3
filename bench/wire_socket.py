"""The load generator's WebSocket client: all requests on one socket, frames read as they come."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from time import perf_counter
from typing import Any, cast

import msgspec
import orjson
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.uri import parse_uri

from stretto.bench.answer import Answer, Usage
from stretto.bench.sse import Problem
from stretto.bench.wire import connect
from stretto.roles.client.address import Address

MAX_FRAME_BYTES = 64 << 20


class Delta(msgspec.Struct, tag="delta"):
    """A piece of an answer."""

    id: str
    text: str = ""
    token_ids: list[int] = []


class Done(msgspec.Struct, tag="done"):
    """The end of an answer."""

    id: str
    usage: Usage | None = None


class Error(msgspec.Struct, tag="error"):
    """The end of a request that failed."""

    error: Problem
    id: str | None = None


_frame = msgspec.json.Decoder(Delta | Done | Error)


class SocketWire:
    """See `wire.Wire`; asks `/v1/stream`."""

    def __init__(self, address: Address, api_key: str | None = None) -> None:
        self._address, self._api_key = address, api_key
        self._socket: asyncio.Task[Socket] | None = None

    async def ask(self, body: dict[str, Any]) -> Answer:
        answer = Answer()
        try:
            socket = await self._connected()
            await socket.ask(body, answer)
        except OSError as error:
            answer.fail(f"cannot connect to {self._address}: {error}")
        return answer

    async def _connected(self) -> Socket:
        """The one socket, which the first request opens. Raises `OSError`."""
        if self._socket is None:
            self._socket = asyncio.create_task(self._connect())
        return await asyncio.shield(self._socket)

    async def _connect(self) -> Socket:
        socket = await connect(self._address, lambda: Socket(self._address.websocket, self._api_key))
        await socket.opened
        return socket

    async def close(self) -> None:
        if self._socket is not None and self._socket.done() and self._socket.exception() is None:
            self._socket.result().close()


class Socket(asyncio.Protocol):
    """One WebSocket."""

    _transport: asyncio.Transport

    def __init__(self, url: str, api_key: str | None) -> None:
        self._ws = ClientProtocol(parse_uri(url), max_size=MAX_FRAME_BYTES)
        self._api_key = api_key
        self._live: dict[str, tuple[Answer, asyncio.Future[None]]] = {}
        self._count = 0
        self._partial = b""
        self._lost = False
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Set when the handshake is over; an `OSError` when it failed."""

    async def ask(self, body: dict[str, Any], answer: Answer) -> None:
        """Send a request and wait until its answer has ended, one way or the other."""
        if self._lost:
            raise ConnectionError("the socket was lost")
        self._count += 1
        name, done = str(self._count), asyncio.get_running_loop().create_future()
        self._live[name] = answer, done
        self._ws.send_text(orjson.dumps({"type": "generate", "id": name, "request": body}))
        self._flush()
        await done

    def close(self) -> None:
        if not self._lost:
            self._ws.send_close(1000)
            self._flush()
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        request = self._ws.connect()
        if self._api_key:
            request.headers["Authorization"] = f"Bearer {self._api_key}"
        self._ws.send_request(request)
        self._flush()

    def data_received(self, data: bytes) -> None:
        now = perf_counter()
        self._ws.receive_data(data)
        for event in self._ws.events_received():
            if isinstance(event, Response):
                self._greeted()
            elif isinstance(event, Frame) and event.opcode in (Opcode.TEXT, Opcode.CONT):
                self._partial += bytes(event.data)
                if event.fin:
                    self._hear(self._partial, now)
                    self._partial = b""
        self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        self._lost = True
        if not self.opened.done():
            self.opened.set_exception(ConnectionError("the server closed the connection"))
        self._end(list(self._live), "the server closed the connection", perf_counter())

    def _greeted(self) -> None:
        if self._ws.handshake_exc is None:
            self.opened.set_result(None)
        else:
            self.opened.set_exception(ConnectionError(str(self._ws.handshake_exc)))

    def _hear(self, data: bytes, now: float) -> None:
        match _frame.decode(data):
            case Delta(name, text, token_ids) if name in self._live:
                self._live[name][0].hear(now, text, token_ids)
            case Done(name, usage) if name in self._live:
                self._live[name][0].usage = usage
                self._end([name], "", now)
            case Error(problem, name):  # without a name it is about a frame of ours, and we send no other
                self._end(list(self._live) if name is None else [name], problem.message, now)

    def _end(self, names: Iterable[str], error: str, now: float) -> None:
        for name in names:
            answer, done = self._live.pop(name)
            answer.ended, answer.error = now, error
            done.set_result(None)

    def _flush(self) -> None:
        for data in self._ws.data_to_send():
            if data:
                self._transport.write(data)
            else:
                self._transport.close()
