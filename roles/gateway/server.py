"""uvicorn's protocols on a listening socket, without uvicorn's server.

`uvicorn.Server` wakes ten times per second to look at flags; an idle gateway is to use no CPU. What is left
of it when the flags are gone is small, and stands here.
"""

from __future__ import annotations

import asyncio
import functools
import math
import secrets
import socket
import time
from collections.abc import Sequence
from email.utils import formatdate
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.http11 import Request

from stretto.roles.gateway.accepting import Acceptor, room
from stretto.roles.gateway.bare import bare_answer
from stretto.roles.gateway.faults import refusal
from stretto.roles.gateway.http import App
from stretto.roles.messages import Fault

PING_SECONDS = 20.0
"""Between pings on a WebSocket, and from a ping to the end of a socket that does not answer."""
EXTRA = 2048
"""Connections beyond twice those that are served, which are told so."""
MAX_HEAD_BYTES = 64 << 10
MAX_HEADERS = 128
OPEN_TO_CROWDS = (b"/health", b"/metrics", b"/ping")
"""Paths that are served however many connections there are."""

_TOO_BIG = Fault(431, f"The request's head is larger than {MAX_HEAD_BYTES} bytes or {MAX_HEADERS} headers.")
_TOO_MANY = Fault(503, "The server has more connections than it takes.", "server_error",
                  code="too_many_connections", retry_after=1)  # fmt: skip
_TOO_SLOW = Fault(408, "The request's head was not complete in time.", code="request_timeout")


class HttpProtocol(HttpToolsProtocol):
    """One HTTP connection: uvicorn's, with limits on heads, on idleness and on how many there are."""

    def __init__(
        self,
        *args: Any,
        max_connections: int,
        most: int,
        idle_seconds: float,
        allowed: Sequence[str],
        **kwargs: Any,
    ) -> None:
        """Beyond `max_connections` they get `OPEN_TO_CROWDS` only, beyond `most` nothing.

        `allowed`: the origins whose pages may read what is answered here.
        """
        super().__init__(*args, **kwargs)
        self._allowed = allowed
        self._max_connections, self._most, self._idle_seconds = max_connections, most, idle_seconds
        self._crowded = self._last = False
        self._head_bytes: int | None = 0
        """Of the head that is coming in; None while there is none."""
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A head is due from now on."""
        super().connection_made(transport)
        self._crowded = len(self.connections) > self._max_connections
        if len(self.connections) > self._most:
            self._refuse(_TOO_MANY)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is due any more."""
        self._head_done()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what has come, within limits."""
        if self.transport.is_closing():
            return
        if self._head_bytes is None and (self.cycle is None or self.cycle.response_complete):
            self._expect_head()
        super().data_received(data)
        if self._head_bytes is not None and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse(_TOO_BIG)

    def last_call(self) -> None:
        """Close the connection after the answer that is due, or the next one."""
        self._last = True
        if self.cycle is not None:
            self.cycle.keep_alive = False

    def _expect_head(self) -> None:
        self._head_bytes = 0
        self._head_timer = self.loop.call_later(self._idle_seconds, self._on_slow)

    def _head_done(self) -> None:
        self._head_bytes = None
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _on_slow(self) -> None:
        if self._head_bytes:
            self._refuse(_TOO_SLOW)
        else:
            self.transport.close()

    def on_headers_complete(self) -> None:
        """Give the answer a date and a name, and the application a way to end the connection."""
        self._head_done()
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if len(self.headers) > MAX_HEADERS or size > MAX_HEAD_BYTES:
            self._refuse(_TOO_BIG)
            return
        if self._crowded and self.url.partition(b"?")[0] not in OPEN_TO_CROWDS:
            self._refuse(_TOO_MANY)
            return
        name = f"req-{secrets.token_hex(8)}"
        extensions: dict[str, Any] = {
            "stretto.abort": self.transport.abort,
            "stretto.idle_seconds": self._idle_seconds,
        }
        self.scope["extensions"] = extensions
        self.server_state.default_headers = [
            (b"date", _date(int(time.time()))),
            (b"x-request-id", name.encode()),
        ]
        super().on_headers_complete()
        if self._last and self.cycle is not None:
            self.cycle.keep_alive = False

    def send_400_response(self, msg: str) -> None:
        """What comes is not HTTP: say so like every other error."""
        if not self.transport.is_closing():
            self._refuse(refusal(msg).fault)

    def _refuse(self, fault: Fault) -> None:
        """Answer without the application, and close."""
        self._head_done()
        self.transport.write(bare_answer(fault, self.headers or (), self._allowed))
        self.transport.close()


class SocketProtocol(WebSocketsSansIOProtocol):
    """One WebSocket: uvicorn's, with a way to end it whatever is still to be sent."""

    def handle_connect(self, event: Request) -> None:
        """Give the application that way."""
        self.app = self._wrapped(self.app)
        super().handle_connect(event)

    def _wrapped(self, app: Any) -> App:
        async def wrapped(scope: Any, receive: Any, send: Any) -> None:
            scope.setdefault("extensions", {})["stretto.abort"] = self.transport.abort
            await app(scope, receive, send)
            if self.initial_response is not None:
                self.handshake_complete = True  # by a refusal, which uvicorn would log as an error of ours

        return wrapped


@functools.lru_cache(maxsize=1)
def _date(second: int) -> bytes:
    return formatdate(second, usegmt=True).encode()


class HttpServer:
    """Serves an ASGI application on one socket, TCP or Unix, which it owns from then on."""

    def __init__(
        self,
        app: App,
        listener: socket.socket,
        max_message_bytes: int,
        max_connections: int = 4096,
        idle_seconds: float = 75.0,
        allowed: Sequence[str] = (),
    ) -> None:
        """`idle_seconds`: longer than clients keep connections, lest one is closed just as it is used.

        `allowed`: the origins whose pages may read what is answered without the application.
        """
        self._listener, self._allowed = listener, allowed
        self._most = room(2 * max_connections + EXTRA)
        self._max_connections, self._idle_seconds = min(max_connections, self._most * 3 // 4), idle_seconds
        self._config = uvicorn.Config(
            app,
            http=HttpProtocol,
            ws=SocketProtocol,
            ws_max_size=max_message_bytes,
            ws_ping_interval=PING_SECONDS,
            ws_ping_timeout=PING_SECONDS,
            ws_per_message_deflate=False,  # text this short only grows, and it costs a window per socket
            interface="asgi3",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            timeout_keep_alive=math.ceil(idle_seconds),
        )
        self._state = ServerState()
        self._acceptor: Acceptor | None = None

    async def start(self) -> None:
        """Accept connections from now on."""
        self._config.load()
        protocol = functools.partial(
            HttpProtocol,
            config=self._config,
            server_state=self._state,
            app_state={},
            max_connections=self._max_connections,
            most=self._most,
            idle_seconds=self._idle_seconds,
            allowed=self._allowed,
        )
        self._acceptor = Acceptor(self._listener, protocol)

    def stop_accepting(self) -> None:
        """Take no new connections; those there are go on."""
        if self._acceptor is not None:
            self._acceptor.close()

    def retire(self) -> None:
        """Take no new connections, and let those of HTTP end with their next answer."""
        self.stop_accepting()
        for connection in list(self._state.connections):
            if isinstance(connection, HttpProtocol):
                connection.last_call()

    async def close(self, timeout: float) -> None:
        """Close every connection: idle ones at once, others after their answer, `timeout` seconds at most.

        Whoever is busy then sees its client leave.
        """
        self.stop_accepting()
        for connection in list(self._state.connections):
            connection.shutdown()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=timeout)
        for connection in list(self._state.connections):
            connection.transport.abort()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks)
