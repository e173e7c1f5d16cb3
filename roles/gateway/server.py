"""uvicorn's protocols on a listening socket, without uvicorn's server.

`uvicorn.Server` wakes ten times per second to look at flags; an idle gateway is to use no CPU. What is left
of it when the flags are gone is small, and stands here.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import time
from email.utils import formatdate

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from stretto.roles.gateway.faults import error_json, refusal
from stretto.roles.gateway.http import App

KEEP_ALIVE_SECONDS = 75
"""How long an idle connection stays open: longer than clients keep theirs, so that none is closed just as its
client uses it again."""
PING_SECONDS = 20.0
"""Between pings on a WebSocket, and from a ping to the end of a socket that does not answer."""
BACKLOG = 2048


class HttpProtocol(HttpToolsProtocol):
    """One HTTP connection."""

    def on_headers_complete(self) -> None:
        """Date the answer; uvicorn's own server does so by its clock tick."""
        self.server_state.default_headers = [(b"date", _date(int(time.time())))]
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """What comes is not HTTP: say so like every other error."""
        body = error_json(refusal(msg).fault)
        head = (
            "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


@functools.lru_cache(maxsize=1)
def _date(second: int) -> bytes:
    return formatdate(second, usegmt=True).encode()


class HttpServer:
    """Serves an ASGI application on one socket, TCP or Unix, which it owns from then on."""

    def __init__(self, app: App, listener: socket.socket, max_message_bytes: int) -> None:
        self._listener = listener
        self._config = uvicorn.Config(
            app,
            http=HttpProtocol,
            ws="websockets-sansio",
            ws_max_size=max_message_bytes,
            ws_ping_interval=PING_SECONDS,
            ws_ping_timeout=PING_SECONDS,
            ws_per_message_deflate=False,  # text this short only grows, and it costs a window per socket
            interface="asgi3",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
        )
        self._state = ServerState()
        self._server: asyncio.AbstractServer | None = None

    async def start(self) -> None:
        """Accept connections from now on."""
        self._config.load()
        protocol = functools.partial(
            HttpProtocol, config=self._config, server_state=self._state, app_state={}
        )
        loop = asyncio.get_running_loop()
        create = loop.create_unix_server if self._listener.family == socket.AF_UNIX else loop.create_server
        self._server = await create(protocol, sock=self._listener, backlog=BACKLOG)

    def stop_accepting(self) -> None:
        """Take no new connections; those there are go on."""
        if self._server is not None:
            self._server.close()

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
