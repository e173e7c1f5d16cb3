"""The detokenizer's process: tokens in from the scheduler, text out to the gateways."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import msgspec
import zmq

from stretto.roles import messages as m
from stretto.roles.actor import Context, Role
from stretto.roles.alarm import Alarm
from stretto.roles.detokenizer.core import Core, Turn
from stretto.roles.detokenizer.scheme import load_scheme
from stretto.roles.sockets import RETRY_SECONDS, Mailbox, Outboxes
from stretto.roles.trace import Probe, span

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(m.Tokens)
_calls: msgspec.msgpack.Decoder[m.ToDetokenizer] = msgspec.msgpack.Decoder(m.ToDetokenizer)


class Detokenizer(Role):
    """Receives `Tokens`, and from gateways whose clients come and go `Attach`, `Detach` and `Keep`.

    Sends `Events`, one message per gateway and turn; to the scheduler `StopHit`, and to a new one `Recall`.
    While a gateway takes nothing it leaves messages in the ring, so that the scheduler feels it.
    """

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self._alarm = Alarm(ctx.wake)

    async def open(self) -> dict[str, Any]:
        """Load the vocabulary, bind the mailbox."""
        ctx, self._loop = self.ctx, asyncio.get_running_loop()
        scheme = load_scheme(Path(ctx.config.model_dir))
        self._core = Core(scheme, ctx.at_work)
        self._inbox = ctx.receiver("scheduler.0")
        self._scheduler = ctx.sender("scheduler.0")
        self._zmq = zmq.Context()
        gateways = ctx.config.gateways + 1  # one is spare, for the successor of one that is replaced
        self._gateways = Outboxes(self._zmq, lambda i: ctx.endpoint("gateway", i), gateways)
        self._mailbox = Mailbox(self._zmq, ctx.endpoint("detokenizer", ctx.index))
        self._loop.add_reader(self._mailbox.fd, self._on_mail)
        self._recall()
        return {"scheme": type(scheme).__name__}

    def _on_mail(self) -> None:
        self._mailbox.hear()
        self.ctx.wake()

    def turn(self) -> None:
        """Take in every message there is, then send what became certain."""
        if self._gateways.blocked():
            self._loop.call_later(RETRY_SECONDS, self.ctx.wake)
            return
        self._core.tick(time.monotonic())
        for record in self._inbox.drain():
            tokens = _decoder.decode(record)
            for report in tokens.reports:
                self._gateways.send(report.gateway, _encoder.encode(report))
            self._core.feed(tokens)
        while (data := self._mailbox.receive()) is not None:
            self._handle(data)
        self._tell(self._core.take())
        self._alarm.set(self._core.next_deadline)
        self.ctx.meter.set("streams_live", len(self._core))

    def _handle(self, data: bytes) -> None:
        try:
            message = _calls.decode(data)
        except msgspec.DecodeError as error:
            self.ctx.log.warning("dropped a malformed message of %d bytes: %s", len(data), error)
            return
        match message:
            case m.Attach(uid, gateway) if gateway not in self._gateways:
                self.ctx.log.warning("dropped a call of unknown gateway %d for stream %d", gateway, uid)
            case m.Attach():
                self._core.attach(message)
            case m.Detach():
                self._core.detach(message)
            case m.Keep():
                self._core.keep(message)

    def _tell(self, turn: Turn) -> None:
        for gateway, news in turn.moves:
            self._gateways.send(gateway, _encoder.encode(news))
        for gateway, events in turn.events.items():
            self._send(gateway, events)
        if turn.stopped:
            self._scheduler.send(_encoder.encode(m.StopHit(turn.stopped)))

    def _send(self, gateway: int, events: list[m.Event]) -> None:
        self._gateways.send(gateway, _encoder.encode(m.Events(events)))

    def _recall(self) -> None:
        for recall in self._core.recall():
            self._scheduler.send(_encoder.encode(recall))

    def probes(self) -> tuple[Probe, ...]:
        """See `roles.actor`."""
        return (
            span(Detokenizer, "turn", "turn"),
            span(Core, "feed", "detokenise", ("tokens",), lambda _, core, tokens: (len(tokens.ids) // 4,)),
            span(Core, "take", "collect text"),
            span(Detokenizer, "_send", "encode", ("events",), lambda _, role, to, events: (len(events),)),
        )

    def rewired(self, edge: str, killed: bool = False) -> None:
        """The scheduler died: its successor goes on with what is here."""
        if edge.startswith(self.ctx.name):
            self._recall()

    def peer_lost(self, role: str, index: int, suspect: int = 0) -> None:
        """A gateway's streams are of no use but to clients that come back; a deadly request is given up."""
        if role == "gateway":
            self._gateways.drop(index)
            self._core.lose_gateway(index)
        elif role == "scheduler" and suspect:
            self._core.suspect(suspect)

    async def close(self) -> None:
        """Close the sockets."""
        self._loop.remove_reader(self._mailbox.fd)
        self._zmq.destroy(linger=0)
