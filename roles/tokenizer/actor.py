"""The tokenizer's process: gateways' messages in, requests in tokens out to the scheduler."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import zmq

from stretto.roles import messages as m
from stretto.roles.actor import Role
from stretto.roles.sockets import RETRY_SECONDS, Mailbox, Outboxes
from stretto.roles.tokenizer.chat import load_template
from stretto.roles.tokenizer.core import Core
from stretto.roles.tokenizer.lane import Lane, Outcome, Task
from stretto.roles.tokenizer.refusal import Refused
from stretto.roles.tokenizer.vocabulary import load_vocabulary
from stretto.roles.trace import Probe, span

BYTES_PER_TURN = 1 << 16
"""Work done before the loop gets to heartbeats and control: some 20 ms of encoding. More is for the lane."""

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[m.ToTokenizer] = msgspec.msgpack.Decoder(m.ToTokenizer)


class Tokenizer(Role):
    """Receives `Submit` and `Cancel`; sends `Request` and `Abort` to the scheduler, `Rejected` to a gateway.

    `Tokenize` and `Detokenize` it answers itself.
    While the ring to the scheduler is full, or a gateway takes nothing, it leaves messages in the mailbox, so
    that gateways feel it.
    A cancel cannot overtake its request: both go through this loop, in order.
    """

    async def open(self) -> dict[str, Any]:
        """Load the vocabulary and the template, bind the mailbox."""
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # the cores belong to the model
        ctx = self.ctx
        model_dir = Path(ctx.config.model_dir)
        vocabulary = load_vocabulary(model_dir, ctx.config.max_model_len)
        self._core = Core(vocabulary, load_template(model_dir))
        self._lane = Lane(self._work_aside, ctx.wake)
        self._scheduler = ctx.sender("scheduler.0")
        self._zmq = zmq.Context()
        gateways = ctx.config.gateways + 1  # one is spare, for the successor of one that is replaced
        self._gateways = Outboxes(self._zmq, lambda i: ctx.endpoint("gateway", i), gateways)
        self._mailbox = Mailbox(self._zmq, ctx.endpoint("tokenizer", ctx.index))
        asyncio.get_running_loop().add_reader(self._mailbox.fd, self._on_mail)
        return {"vocabulary": vocabulary.size, "context": vocabulary.context, "eos": list(vocabulary.eos)}

    def _on_mail(self) -> None:
        self._mailbox.hear()
        self.ctx.wake()

    def turn(self) -> None:
        """Handle what the lane has done and what is in the mailbox, up to `BYTES_PER_TURN`."""
        if self._gateways.blocked():
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self.ctx.wake)
            return
        budget = BYTES_PER_TURN
        while budget > 0:
            if self._scheduler.blocked:
                return  # the space bell wakes us
            if (done := self._lane.take()) is not None:
                self._settle(*done)
            if self._lane.full:
                return  # the lane wakes us
            data = self._mailbox.receive()
            if data is None:
                return
            budget -= len(data)
            self._handle(data)
        asyncio.get_running_loop().call_soon(self.ctx.wake)  # not at once: the loop must turn in between

    def _handle(self, data: bytes) -> None:
        try:
            message = _decoder.decode(data)
        except msgspec.DecodeError as error:
            self.ctx.log.warning("dropped a malformed message of %d bytes: %s", len(data), error)
            return
        match message:
            case m.Cancel(uid):
                if not self._lane.cancel(uid):
                    self._abort(uid)
            case _ if message.gateway not in self._gateways:
                self.ctx.log.warning("dropped request %d of unknown gateway %d", message.uid, message.gateway)
            case m.CacheQuery(uid, gateway, flush):
                self._scheduler.send(_encoder.encode(m.Inspect(uid, gateway, flush)))
            case _ if len(data) > BYTES_PER_TURN:
                self._lane.add(message)
            case _:
                self._settle(message, self._work(message))

    def _work_aside(self, task: Task) -> Outcome:
        """On the lane's thread."""
        self.ctx.at_work(task.uid, lane=1)
        outcome = self._prepare(task)
        self.ctx.at_work(0, lane=1)
        return outcome

    def _work(self, task: Task) -> Outcome:
        self.ctx.at_work(task.uid)
        outcome = self._prepare(task)
        self.ctx.at_work(0)
        return outcome

    def _prepare(self, task: Task) -> Outcome:
        try:
            match task:
                case m.Submit():
                    return self._core.prepare(task)
                case m.Tokenize():
                    return self._core.tokenize(task)
                case m.Detokenize():
                    return self._core.detokenize(task)
        except Refused as refused:
            return m.Rejected(task.uid, refused.fault)

    def _settle(self, task: Task, outcome: Outcome, cancelled: Sequence[int] = ()) -> None:
        """Send requests to the scheduler, or the answer to the gateway."""
        if not isinstance(outcome, list):
            self._reply(task.gateway, outcome)
            return
        self.ctx.meter.add("prompts_total")
        for request in outcome:
            self._scheduler.send(_encoder.encode(request))
        for uid in cancelled:
            self._abort(uid)

    def _abort(self, uid: int) -> None:
        self._scheduler.send(_encoder.encode(m.Abort(uid)))

    def _reply(self, gateway: int, message: m.ToGateway) -> None:
        if isinstance(message, m.Rejected):
            self.ctx.meter.add("prompts_rejected_total")
        self._gateways.send(gateway, _encoder.encode(message))

    def probes(self) -> tuple[Probe, ...]:
        """See `roles.actor`. What the lane does on its thread is not recorded."""
        return (
            span(Tokenizer, "turn", "turn"),
            span(Tokenizer, "_work", "tokenise", ("uid",), lambda _, role, task: (task.uid,)),
            span(Tokenizer, "_settle", "encode"),
        )

    async def close(self) -> None:
        """Close the sockets."""
        asyncio.get_running_loop().remove_reader(self._mailbox.fd)
        self._zmq.destroy(linger=0)
