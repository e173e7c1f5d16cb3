"""The detokenizer's process: tokens in from the scheduler, text out to the gateways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import zmq

from stretto.roles import messages as m
from stretto.roles.actor import Role
from stretto.roles.detokenizer.core import Core
from stretto.roles.detokenizer.scheme import load_scheme
from stretto.roles.sockets import Outbox
from stretto.roles.trace import Probe, span

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(m.Tokens)


class Detokenizer(Role):
    """Receives `Tokens`; sends `Events`, one message per gateway and turn, and `StopHit` to the scheduler."""

    async def open(self) -> dict[str, Any]:
        """Load the vocabulary, connect to the gateways."""
        ctx = self.ctx
        scheme = load_scheme(Path(ctx.config.model_dir))
        self._core = Core(scheme)
        self._inbox = ctx.receiver("scheduler.0")
        self._scheduler = ctx.sender("scheduler.0")
        self._zmq = zmq.Context()
        gateways = range(ctx.config.gateways)
        self._gateways = [Outbox(self._zmq, ctx.endpoint("gateway", i)) for i in gateways]
        self._scheduler.send(_encoder.encode(m.Recall()))
        return {"scheme": type(scheme).__name__}

    def turn(self) -> None:
        """Take in every message there is, then send what became certain."""
        for record in self._inbox.drain():
            self._core.feed(_decoder.decode(record))
        turn = self._core.take()
        for gateway, events in turn.events.items():
            self._send(gateway, events)
        if turn.stopped:
            self._scheduler.send(_encoder.encode(m.StopHit(turn.stopped)))
        self.ctx.meter.set("streams_live", len(self._core))

    def _send(self, gateway: int, events: list[m.Event]) -> None:
        if not self._gateways[gateway].send(_encoder.encode(m.Events(events))):
            self.ctx.log.warning("gateway %d takes no messages: dropped %d events", gateway, len(events))

    def probes(self) -> tuple[Probe, ...]:
        """See `roles.actor`."""
        return (
            span(Detokenizer, "turn", "turn"),
            span(Core, "feed", "detokenise", ("tokens",), lambda _, core, tokens: (len(tokens.ids) // 4,)),
            span(Core, "take", "collect text"),
            span(Detokenizer, "_send", "encode", ("events",), lambda _, role, to, events: (len(events),)),
        )

    def rewired(self, edge: str) -> None:
        """The scheduler died: the gateways fail its requests themselves, so they go without a word."""
        if edge.endswith(">scheduler.0"):
            self._core.clear()
            self._scheduler.send(_encoder.encode(m.Recall()))

    async def close(self) -> None:
        """Close the sockets."""
        self._zmq.destroy(linger=0)
