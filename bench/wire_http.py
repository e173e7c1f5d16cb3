"""The load generator's HTTP client: a kept-alive connection for each live request, SSE read as it comes."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Any, cast
from urllib.parse import urlsplit

import httptools
import msgspec
import orjson

from stretto.bench import sse
from stretto.bench.answer import Answer
from stretto.bench.wire import connect
from stretto.roles.client.address import Address


class HttpWire:
    """See `wire.Wire`; asks `POST /v1/completions`. Opens as many connections as requests are live."""

    def __init__(self, address: Address, api_key: str | None = None) -> None:
        self._address = address
        self._idle: list[Connection] = []
        parts = urlsplit(address.http)
        key = f"Authorization: Bearer {api_key}\r\n" if api_key else ""
        self._head = (
            f"POST {parts.path}/v1/completions HTTP/1.1\r\nHost: {parts.netloc}\r\n{key}"
            "Content-Type: application/json\r\nContent-Length: "
        ).encode()

    async def ask(self, body: dict[str, Any]) -> Answer:
        data = orjson.dumps(body)
        request = b"%b%d\r\n\r\n%b" % (self._head, len(data), data)
        answer = Answer()
        try:
            connection = await self._connection()
            await connection.ask(request, answer)
        except OSError as error:
            answer.fail(f"cannot connect to {self._address}: {error}")
        else:
            self._idle.append(connection)
        return answer

    async def _connection(self) -> Connection:
        """One that is idle and still open, or a new one."""
        while self._idle:
            if (connection := self._idle.pop()).usable:
                return connection
        return await connect(self._address, Connection)

    async def close(self) -> None:
        for connection in self._idle:
            connection.close()


class Connection(asyncio.Protocol):
    """One connection; the methods beginning with `on_` are the parser's callbacks."""

    _transport: asyncio.Transport
    _answer: Answer
    _reader: sse.Reader
    _done: asyncio.Future[None]

    def __init__(self) -> None:
        self.usable = False
        self._live = False
        self._now = 0.0
        self._refusal = b""

    async def ask(self, request: bytes, answer: Answer) -> None:
        """Send a request and wait until its answer has ended, one way or the other."""
        self._answer, self._reader, self._refusal = answer, sse.Reader(answer), b""
        self._parser = httptools.HttpResponseParser(self)
        self._done, self._live = asyncio.get_running_loop().create_future(), True
        self._transport.write(request)
        await self._done

    def close(self) -> None:
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self.usable = cast(asyncio.Transport, transport), True

    def data_received(self, data: bytes) -> None:
        self._now = perf_counter()
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, msgspec.DecodeError) as error:
            self._end(f"the server's answer makes no sense: {error.__context__ or error}")
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._now = perf_counter()
        self.usable = False
        if self._live:
            self._end("" if self._reader.complete else "the server closed the connection")

    def on_body(self, body: bytes) -> None:
        if self._parser.get_status_code() == 200:
            self._reader.feed(body, self._now)
        else:
            self._refusal += body

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        self.usable = self._parser.should_keep_alive()
        self._end("" if status == 200 else f"HTTP {status}: {sse.message(self._refusal)}")

    def _end(self, error: str) -> None:
        if self._live:
            self._live = False
            self._answer.ended, self._answer.error = self._now, self._answer.error or error
            self._done.set_result(None)
