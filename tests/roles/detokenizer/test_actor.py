import asyncio
import logging
from array import array
from types import SimpleNamespace

import msgspec
import pytest
import zmq
import zmq.asyncio

from stretto.roles import messages as m
from stretto.roles.detokenizer.actor import Detokenizer


class FakeRing:
    """Both directions of the scheduler's rings."""

    def __init__(self):
        self.records, self.sent = [], []

    def drain(self):
        while self.records:
            yield self.records.pop(0)

    def send(self, payload):
        self.sent.append(msgspec.msgpack.decode(payload, type=m.ToSchedulerFromDetokenizer))


class FakeContext:
    def __init__(self, run_dir, model_dir):
        self.config = SimpleNamespace(model_dir=str(model_dir), gateways=2)
        self.run_dir, self.ring, self.meter = run_dir, FakeRing(), {}
        self.meter = SimpleNamespace(set=lambda name, value: self.gauges.__setitem__(name, value))
        self.gauges = {}
        self.log = logging.getLogger("detokenizer")

    def sender(self, peer):
        assert peer == "scheduler.0"
        return self.ring

    receiver = sender

    def endpoint(self, role, index):
        return f"ipc://{self.run_dir}/{role}.{index}"


@pytest.fixture
def ctx(tmp_path, byte_level):
    byte_level.save(str(tmp_path / "tokenizer.json"))
    return FakeContext(tmp_path, tmp_path)


def play(ctx, script):
    """Run `script(role, gateways)` with an open role between a fake ring and real sockets."""

    async def run():
        context = zmq.asyncio.Context()
        gateways = [context.socket(zmq.PULL) for _ in range(2)]
        for i, socket in enumerate(gateways):
            socket.bind(ctx.endpoint("gateway", i))
        role = Detokenizer(ctx)
        assert await role.open() == {"scheme": "ByteLevelScheme"}
        try:
            await script(role, gateways)
        finally:
            await role.close()
            context.destroy(linger=0)

    asyncio.run(run())


def step(opens, uids, tokens, index=0, ends=()):
    indices = array("i", [index] * len(uids)).tobytes()
    buffers = (array("q", uids).tobytes(), array("i", tokens).tobytes(), indices)
    return msgspec.msgpack.encode(m.Tokens(list(opens), *buffers, list(ends)))


async def receive(socket):
    return msgspec.msgpack.decode(await socket.recv(), type=m.ToGateway).events


def test_a_turn_sends_one_message_per_gateway_and_reports_stop_hits(ctx):
    async def script(role, gateways):
        opens = [m.Open(uid, 1, m.Output(uid % 2, stream=True, stop=("b",))) for uid in (1, 2, 3)]
        ctx.ring.records += [step(opens, [1, 2, 3], [97] * 3), step([], [1, 2, 3], [98, 97, 97], index=1)]
        role.turn()
        first, second = await receive(gateways[1]), await receive(gateways[0])
        assert [(event.uid, event.text, event.finish_reason) for event in first] == [
            (1, "a", "stop"),
            (3, "aa", None),
        ]
        assert [(event.uid, event.text) for event in second] == [(2, "aa")]
        assert ctx.ring.sent == [m.Recall(), m.StopHit([1])]
        assert ctx.gauges == {"streams_live": 2}

    play(ctx, script)


def test_when_the_scheduler_dies_its_streams_are_dropped_without_a_word(ctx):
    async def script(role, gateways):
        ctx.ring.records.append(step([m.Open(1, 1, m.Output(0, stream=True))], [1], [97]))
        role.turn()
        assert [event.text for event in await receive(gateways[0])] == ["a"]
        role.rewired("detokenizer.0>scheduler.0")
        ctx.ring.records.append(step([], [1], [97], index=1, ends=[m.End(1, "length")]))
        ctx.ring.records.append(step([m.Open(2, 1, m.Output(0, stream=True))], [2], [98]))
        role.turn()
        assert [(event.uid, event.text) for event in await receive(gateways[0])] == [(2, "b")]
        assert ctx.gauges == {"streams_live": 1}

    play(ctx, script)
