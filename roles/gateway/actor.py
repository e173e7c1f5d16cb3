"""The gateway's process: the door, its zmq sockets, and the HTTP server in front of it, on one loop."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from stretto.roles.actor import Context, Role
from stretto.roles.gateway import http
from stretto.roles.gateway.app import application
from stretto.roles.gateway.door import Door
from stretto.roles.gateway.profiler import Profiler
from stretto.roles.gateway.queue import Queue
from stretto.roles.gateway.reader import Reader
from stretto.roles.gateway.readers import Readers
from stretto.roles.gateway.server import HttpServer
from stretto.roles.gateway.sessions import Sessions
from stretto.roles.gateway.websocket import Session
from stretto.roles.gateway.wires import HIGH_WATER, ZmqWires
from stretto.roles.metrics import Meter
from stretto.roles.origins import origins
from stretto.roles.trace import Probe, span
from stretto.shm.board import State
from stretto.shm.trace import Traces

GAUGES = ("requests_live", "requests_queued", "tokens_queued", "connections_live")
TICK_SECONDS = 1.0
LAST_CALL_SECONDS = 0.5
"""How long a gateway that is replaced waits for requests that are on their way on open connections."""
CLOSE_SECONDS = 1.0
"""How long connections get at the end to take in their last bytes."""


class Gateway(Role):
    """HTTP, server-sent events and WebSocket on one side, the role graph on the other.

    Everything happens when a socket has something; `run` only waits for the end.
    """

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        config = ctx.config
        self._wires = ZmqWires(
            ctx.endpoint("gateway", ctx.index),
            [ctx.endpoint("tokenizer", i) for i in range(config.tokenizers)],
            [ctx.endpoint("detokenizer", i) for i in range(config.detokenizers)],
            lambda message: self.door.on_message(message),
            max(HIGH_WATER, config.max_queued_requests + config.max_seqs),  # who may queue finds room
        )
        self.door = Door(
            ctx.index,
            config.tokenizers,
            config.detokenizers,
            self._wires,
            ctx.meter,
            queue=Queue(
                ctx.meter,
                [Meter("gateway", ctx.board.row(n)) for n in ctx.board.names if n.startswith("gateway.")],
                config.max_seqs,
                config.max_queued_requests,
                config.max_queued_tokens,
            ),
            readers=Readers(ctx.meter, config.slow_reader_seconds, config.max_pending_bytes),
            max_seconds=config.max_request_seconds,
        )
        self._profiler = Profiler(ctx.board, ctx.tell, lambda: Traces(ctx.fds["trace"]))
        self._sessions = Sessions(config.resume_seconds)
        self._server = HttpServer(
            application(config, self.door, ctx.meter, ctx.board, self._profiler, self._sessions, ctx.tell),
            socket.socket(fileno=ctx.fds["listen"]),
            config.max_body_bytes,
            config.max_connections,
            config.idle_seconds,
            origins(config.allowed_origins),
        )

    async def open(self) -> dict[str, Any]:
        """Start to listen."""
        for name in GAUGES:
            self.ctx.meter.set(name, 0)
        await self._server.start()
        return {}

    async def run(self) -> None:
        """Serve until told to stop; then let what lives end, for a while."""
        ticker = asyncio.create_task(self._tick())
        while not self.ctx.stopping:
            await self.ctx.wait()
        if self.ctx.board.state(self.ctx.name) is State.RETIRING:
            await self._retire()
        else:
            self.door.stop_intake()  # who comes now is told that the server ends, and `/health` says so
            await self.door.drained(self.ctx.grace)
            self._server.stop_accepting()
        ticker.cancel()

    async def _retire(self) -> None:
        """A successor serves: send the clients there, and end when all that cannot go has its answer."""
        self._server.retire()
        self.door.hand_over()
        await self._sessions.retire()
        await asyncio.sleep(min(LAST_CALL_SECONDS, self.ctx.grace))
        await self.door.drained(self.ctx.grace)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self.door.tick()

    async def close(self) -> None:
        """Close every connection and socket."""
        await self._server.close(CLOSE_SECONDS)
        self._wires.close()

    def peer_lost(self, role: str, index: int, suspect: int = 0) -> None:
        """Submit again what a dead process may have taken with it."""
        self.door.peer_lost(role, index, suspect)

    def probes(self) -> tuple[Probe, ...]:
        """See `roles.actor`."""
        return (
            span(Reader, "read", "read", ("bytes",), lambda _, reader, data: (len(data),)),
            span(Door, "submit", "submit", ("uid",), lambda stream, *_, **__: (stream.uid,)),
            span(Door, "on_message", "deliver"),
            span(http, "write", "write"),
            span(http, "answer", "write"),
            span(Session, "_put", "write"),
        )

    def traced(self, since: int) -> None:
        """Whoever asked for it has an answer."""
        self._profiler.traced(since)
