"""The sockets, over real ipc."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop
import zmq
import zmq.asyncio

from stretto.roles import messages as m
from stretto.roles.gateway import wires
from stretto.roles.gateway.wires import HIGH_WATER, ZmqWires

SUBMIT = m.Submit(uid=1, gateway=0, arrived=0.0, params=m.SamplingParams(), prompt="Hi")
EVENTS = m.Events([m.Event(1, 0, "a")])

Body = Callable[[], Coroutine[Any, Any, None]]


class Peer:
    """The other ends: a tokenizer that reads, somebody who writes to the gateway."""

    def __init__(self, directory: Path) -> None:
        self.gateway, self.tokenizer = f"ipc://{directory}/g", f"ipc://{directory}/t"
        self.detokenizer = f"ipc://{directory}/d"
        self.heard: asyncio.Queue[m.ToGateway] = asyncio.Queue()
        self.context = zmq.asyncio.Context()

    def wires(self, high_water: int = HIGH_WATER) -> ZmqWires:
        return ZmqWires(self.gateway, [self.tokenizer], [self.detokenizer], self.heard.put_nowait, high_water)

    def pull(self) -> zmq.asyncio.Socket:
        socket = self.context.socket(zmq.PULL)
        socket.bind(self.tokenizer)
        return socket

    def push(self) -> zmq.asyncio.Socket:
        socket = self.context.socket(zmq.PUSH)
        socket.connect(self.gateway)
        return socket


@pytest.fixture
def run(tmp_path: Path) -> Callable[[Callable[[Peer], Coroutine[Any, Any, None]]], None]:
    def run(body: Callable[[Peer], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            peer = Peer(tmp_path)
            try:
                await body(peer)
            finally:
                peer.context.destroy(linger=0)

        uvloop.run(main())

    return run


def test_messages_go_both_ways(run: Any) -> None:
    async def body(peer: Peer) -> None:
        ends, pull, push = peer.wires(), peer.pull(), peer.push()
        assert ends.offer(0, SUBMIT)
        ends.post(0, m.Cancel(1))
        decode = msgspec.msgpack.Decoder(m.ToTokenizer).decode
        assert [decode(await pull.recv()) for _ in range(2)] == [SUBMIT, m.Cancel(1)]
        await push.send(msgspec.msgpack.encode(EVENTS))
        assert await peer.heard.get() == EVENTS
        ends.close()

    run(body)


def test_a_burst_is_read_to_its_end(run: Any) -> None:
    async def body(peer: Peer) -> None:
        ends, push = peer.wires(), peer.push()
        count = 4 * wires.BURST + 1
        for i in range(count):
            await push.send(msgspec.msgpack.encode(m.Rejected(i, m.Fault(400, "no"))))
        heard = [await peer.heard.get() for _ in range(count)]
        assert [message.uid for message in heard if isinstance(message, m.Rejected)] == list(range(count))
        ends.close()

    run(body)


def test_a_foreign_message_is_dropped(run: Any) -> None:
    async def body(peer: Peer) -> None:
        ends, push = peer.wires(), peer.push()
        await push.send(b"\xc1")
        await push.send(msgspec.msgpack.encode(EVENTS))
        assert await peer.heard.get() == EVENTS
        ends.close()

    run(body)


def test_a_bug_in_one_message_leaves_the_next_ones_readable(run: Any) -> None:
    async def body(peer: Peer) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)

        def stumble(message: m.ToGateway) -> None:
            peer.heard.put_nowait(message)
            raise RuntimeError("planted")

        ends = ZmqWires(peer.gateway, [], [], stumble)
        push = peer.push()
        for _ in range(3):
            await push.send(msgspec.msgpack.encode(EVENTS))
        assert [await peer.heard.get() for _ in range(3)] == [EVENTS] * 3
        ends.close()

    run(body)


def test_what_is_sent_before_the_tokenizer_is_there_reaches_it(run: Any) -> None:
    async def body(peer: Peer) -> None:
        ends = peer.wires()
        assert ends.offer(0, SUBMIT)
        assert msgspec.msgpack.decode(await peer.pull().recv(), type=m.ToTokenizer) == SUBMIT
        ends.close()

    run(body)


@pytest.mark.parametrize("room", [2, 1500])
def test_a_full_socket_refuses_submits_and_keeps_cancels(run: Any, room: int) -> None:
    async def body(peer: Peer) -> None:
        ends = peer.wires(room)
        taken = 0
        while ends.offer(0, SUBMIT):
            taken += 1
        assert taken == room
        for uid in (1, 2, 3):
            ends.post(0, m.Cancel(uid))
        pull = peer.pull()
        decode = msgspec.msgpack.Decoder(m.ToTokenizer).decode
        received = [decode(await pull.recv()) for _ in range(taken + 3)]
        assert received[taken:] == [m.Cancel(1), m.Cancel(2), m.Cancel(3)]
        assert ends.offer(0, SUBMIT)
        ends.close()

    run(body)
