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
        self.run_dir, self.ring = run_dir, FakeRing()
        self.name, self.index, self.woken, self.crumbs = "detokenizer.0", 0, asyncio.Event(), []
        self.meter = SimpleNamespace(set=lambda name, value: self.gauges.__setitem__(name, value))
        self.gauges = {}
        self.log = logging.getLogger("detokenizer")

    def sender(self, peer):
        assert peer == "scheduler.0"
        return self.ring

    receiver = sender

    def wake(self):
        self.woken.set()

    def at_work(self, uid):
        self.crumbs.append(uid)

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


def open_of(uid, gateway=0, **output):
    request = msgspec.msgpack.encode(uid)
    return m.Open(uid, 1, m.Output(gateway, stream=True, **output), request)


def test_a_new_scheduler_is_told_what_is_here_and_goes_on_with_it(ctx):
    async def script(role, gateways):
        ctx.ring.records.append(step([open_of(1)], [1], [97]))
        role.turn()
        assert [event.text for event in await receive(gateways[0])] == ["a"]
        role.rewired("scheduler.0>detokenizer.0")
        role.rewired("detokenizer.0>scheduler.0")
        assert ctx.ring.sent == [m.Recall(), m.Recall([m.Held(1, b"\x01", b"a\0\0\0")])]
        ctx.ring.records.append(step([open_of(1), open_of(2)], [1, 2], [97, 98]))
        ctx.ring.records.append(step([], [1], [98], index=1))
        role.turn()
        assert [(event.uid, event.index, event.text) for event in await receive(gateways[0])] == [
            (2, 0, "b"),
            (1, 1, "b"),
        ]
        assert ctx.gauges == {"streams_live": 2}
        assert ctx.crumbs[-3:] == [2, 1, 0]

    play(ctx, script)


async def call(ctx, context, *messages):
    socket = context.socket(zmq.PUSH)
    socket.connect(ctx.endpoint("detokenizer", 0))
    for message in messages:
        await socket.send(message if isinstance(message, bytes) else msgspec.msgpack.encode(message))
    return socket


def test_a_client_that_comes_back_to_another_gateway_gets_the_rest(ctx, caplog):
    async def script(role, gateways):
        context = zmq.asyncio.Context()
        ctx.ring.records.append(step([open_of(1, retain=9.0, key=5)], [1], [97]))
        role.turn()
        await receive(gateways[0])
        ctx.woken.clear()
        await call(ctx, context, b"\xc1", m.Attach(1, 7, 0, 5), m.Attach(1, 1, 0, 5))
        while ctx.gauges.get("calls") is None:
            await ctx.woken.wait()
            ctx.woken.clear()
            role.turn()
            if role._core._streams[1].gateway == 1:
                ctx.gauges["calls"] = 1
        answer = msgspec.msgpack.decode(await gateways[0].recv(), type=m.ToGateway)
        assert answer == m.Detached(1, known=True)
        assert [(event.index, event.text) for event in await receive(gateways[1])] == [(0, "a")]
        assert [record.message.split(":")[0] for record in caplog.records] == [
            "dropped a malformed message of 1 bytes",
            "dropped a call of unknown gateway 7 for stream 1",
        ]
        context.destroy(linger=0)

    play(ctx, script)


def test_a_dead_gateways_streams_end_unless_their_clients_may_come_back(ctx):
    async def script(role, gateways):
        ctx.ring.records.append(step([open_of(1), open_of(2, retain=0.01), open_of(3, gateway=1)], [], []))
        role.turn()
        role.peer_lost("gateway", 0)
        role.turn()
        assert ctx.ring.sent[1:] == [m.StopHit([1])]
        assert role._alarm.at is not None
        await ctx.woken.wait()
        role.turn()
        while len(ctx.ring.sent) < 3:
            ctx.woken.clear()
            await ctx.woken.wait()
            role.turn()
        assert ctx.ring.sent[2:] == [m.StopHit([2])]
        assert ctx.gauges == {"streams_live": 1}

    play(ctx, script)


def test_a_request_that_kills_the_scheduler_twice_is_given_up(ctx):
    async def script(role, gateways):
        ctx.ring.records.append(step([open_of(1)], [], []))
        role.turn()
        role.peer_lost("scheduler", 0, 1)
        role.peer_lost("tokenizer", 0, 1)
        role.turn()
        assert ctx.gauges == {"streams_live": 1}
        role.peer_lost("scheduler", 0, 1)
        role.turn()
        (event,) = await receive(gateways[0])
        assert (event.finish_reason, event.fault.code) == ("error", "poison_request")
        assert ctx.ring.sent[1:] == [m.StopHit([1])]

    play(ctx, script)


def test_while_a_gateway_takes_nothing_the_ring_is_left_alone(ctx, monkeypatch):
    async def script(role, gateways):
        monkeypatch.setattr(role._gateways, "blocked", lambda: True)
        ctx.ring.records.append(step([open_of(1)], [1], [97]))
        role.turn()
        assert len(ctx.ring.records) == 1
        monkeypatch.undo()
        await ctx.woken.wait()
        role.turn()
        assert [event.text for event in await receive(gateways[0])] == ["a"]

    play(ctx, script)
