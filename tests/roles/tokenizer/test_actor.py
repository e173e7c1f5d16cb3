import asyncio
import logging
import threading
from types import SimpleNamespace

import msgspec
import pytest
import zmq
import zmq.asyncio

from stretto.roles import messages as m
from stretto.roles.tokenizer.actor import BYTES_PER_TURN, Tokenizer

encode = msgspec.msgpack.encode


class FakeSender:
    def __init__(self):
        self.blocked = False
        self.sent = []

    def send(self, payload):
        self.sent.append(msgspec.msgpack.decode(payload, type=m.ToScheduler))


class FakeMeter(dict):
    def add(self, name):
        self[name] = self.get(name, 0) + 1


class FakeContext:
    """As much of `Context` as the role uses; `wait` as the real one."""

    def __init__(self, run_dir, model_dir):
        self.config = SimpleNamespace(model_dir=str(model_dir), max_model_len=0, gateways=2)
        self.index, self.run_dir, self.stopping = 0, run_dir, False
        self.ring, self.meter, self.log = FakeSender(), FakeMeter(), logging.getLogger("tokenizer")
        self._wakeup = asyncio.Event()
        self.turns = 0
        self.crumbs = []

    def sender(self, peer):
        assert peer == "scheduler.0"
        return self.ring

    def endpoint(self, role, index):
        return f"ipc://{self.run_dir}/{role}.{index}"

    def wake(self):
        self._wakeup.set()

    def at_work(self, uid, lane=0):
        self.crumbs.append((uid, lane))

    async def wait(self):
        await self._wakeup.wait()
        self._wakeup.clear()
        self.turns += 1


class Bench:
    """A running role between a gateway's sockets and a fake ring."""

    def __init__(self, small_dir, run_dir):
        self.ctx = FakeContext(run_dir, small_dir)
        self.zmq = zmq.asyncio.Context()
        self.inbox = self.zmq.socket(zmq.PULL)
        self.inbox.bind(self.ctx.endpoint("gateway", 1))
        self.out = self.zmq.socket(zmq.PUSH)
        self.out.connect(self.ctx.endpoint("tokenizer", 0))

    async def __aenter__(self):
        self.role = Tokenizer(self.ctx)
        self.facts = await self.role.open()
        self.running = asyncio.create_task(self.role.run())
        return self

    async def __aexit__(self, *error):
        self.ctx.stopping = True
        self.ctx.wake()
        await self.running
        await self.role.close()
        self.zmq.destroy(linger=0)

    async def send(self, *messages):
        for message in messages:
            await self.out.send(message if isinstance(message, bytes) else encode(message))

    async def answer(self):
        """The next answer that the gateway gets: what was sent before it has been handled."""
        return msgspec.msgpack.decode(await self.inbox.recv(), type=m.ToGateway)


def submit(uid, prompt, gateway=1):
    return m.Submit(uid, gateway, 0.0, m.SamplingParams(), prompt)


def bad(uid):
    return submit(uid, "")


@pytest.fixture
def bench(small_dir, tmp_path_factory):
    return Bench(small_dir, tmp_path_factory.mktemp("run"))


def test_requests_and_cancels_reach_the_scheduler_in_order_and_rejections_their_gateway(bench):
    async def play():
        async with bench:
            await bench.send(submit(1, "a"), m.Cancel(1), bad(2), submit(3, [5, 6]), bad(4))
            answers = [await bench.answer(), await bench.answer()]
            assert [(answer.uid, answer.fault.status) for answer in answers] == [(2, 400), (4, 400)]
            assert bench.facts == {"vocabulary": 264, "context": 32, "eos": [259, 5]}

    asyncio.run(play())
    first, abort, third = bench.ctx.ring.sent
    assert (first.uid, first.prompt_ids, abort, third.uid) == (1, b"a\0\0\0", m.Abort(1), 3)
    assert bench.ctx.meter == {"prompts_total": 2, "prompts_rejected_total": 2}


def test_malformed_messages_are_dropped_and_logged(bench, caplog):
    async def play():
        async with bench:
            await bench.send(b"", b"\xc1", encode({"type": "submit"}), encode(m.Abort(1)))
            await bench.send(submit(1, "a", gateway=3), submit(1, "a", gateway=-1), submit(2, "a"), bad(3))
            assert (await bench.answer()).uid == 3

    asyncio.run(play())
    assert [request.uid for request in bench.ctx.ring.sent] == [2]
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "dropped a malformed message of 0 bytes",
        "dropped a malformed message of 1 bytes",
        "dropped a malformed message of 13 bytes",
        "dropped a malformed message of 8 bytes",
        "dropped request 1 of unknown gateway 3",
        "dropped request 1 of unknown gateway -1",
    ]


def test_a_full_ring_leaves_messages_in_the_mailbox_until_it_drains(bench):
    async def play():
        async with bench:
            await bench.send(bad(1))
            await bench.answer()
            bench.ctx.ring.blocked = True
            await bench.send(submit(2, "a"), bad(3))
            turns = bench.ctx.turns
            while bench.ctx.turns == turns:
                await asyncio.sleep(0)
            assert bench.ctx.ring.sent == []
            bench.ctx.ring.blocked = False
            bench.ctx.wake()
            assert (await bench.answer()).uid == 3

    asyncio.run(play())
    assert [request.uid for request in bench.ctx.ring.sent] == [2]


def test_a_flood_lets_the_loop_turn_in_between(bench):
    message = encode(submit(1, [1] * 25))
    count = 4 * BYTES_PER_TURN // len(message)

    async def play():
        async with bench:
            await bench.send(bad(1))
            await bench.answer()
            before = bench.ctx.turns
            bench.ctx.ring.blocked = True
            await bench.send(*[message] * count)
            bench.ctx.ring.blocked = False
            bench.ctx.wake()
            await bench.send(bad(2))
            await bench.answer()
            assert bench.ctx.turns - before >= 4

    asyncio.run(play())
    assert len(bench.ctx.ring.sent) == count


def hold_lane(bench, gate):
    """Nothing on the lane is done before `gate` is set."""
    work = bench.role._lane._work

    def slowly(task):
        gate.wait()
        return work(task)

    bench.role._lane._work = slowly


def test_a_long_prompt_does_not_hold_up_the_others_and_its_cancel_follows_it(bench):
    gate = threading.Event()

    async def play():
        async with bench:
            hold_lane(bench, gate)
            padding = {"x": "y" * BYTES_PER_TURN}
            await bench.send(m.Submit(1, 1, 0.0, m.SamplingParams(), "a", template_kwargs=padding))
            await bench.send(m.Cancel(1), submit(2, "a"), m.Cancel(3), bad(4))
            assert (await bench.answer()).uid == 4
            gate.set()
            while bench.ctx.ring.sent[-1] != m.Abort(1):
                await asyncio.sleep(0)

    asyncio.run(play())
    assert bench.ctx.crumbs == [(2, 0), (0, 0), (4, 0), (0, 0), (1, 1), (0, 1)]
    second, stranger, first, abort = bench.ctx.ring.sent
    assert (second.uid, stranger, first.uid, abort) == (2, m.Abort(3), 1, m.Abort(1))


def test_every_choice_is_a_request_and_a_cancel_is_for_one(bench):
    async def play():
        async with bench:
            await bench.send(m.Submit(1, 1, 0.0, m.SamplingParams(n=2), "a"), m.Cancel(2), bad(9))
            await bench.answer()

    asyncio.run(play())
    first, second, abort = bench.ctx.ring.sent
    assert (first.uid, first.leader, second.uid, second.leader, abort) == (1, None, 2, 1, m.Abort(2))
    assert bench.ctx.meter["prompts_total"] == 1


def test_texts_and_ids_are_converted_for_the_gateway_alone(bench):
    async def play():
        async with bench:
            await bench.send(m.Tokenize(1, 1, "a ab"))
            assert await bench.answer() == m.Tokenized(1, [97, 257], ["a", "Ġab"], 32)
            await bench.send(m.Detokenize(2, 1, [97, 257]), m.Detokenize(3, 1, [264]))
            assert await bench.answer() == m.Detokenized(2, "a ab")
            answer = await bench.answer()
            assert (answer.uid, answer.fault.param) == (3, "tokens")

    asyncio.run(play())
    assert bench.ctx.ring.sent == []


def test_a_long_text_to_convert_does_not_hold_up_the_others(bench):
    gate = threading.Event()

    async def play():
        async with bench:
            hold_lane(bench, gate)
            await bench.send(m.Tokenize(1, 1, "x" * BYTES_PER_TURN), bad(2))
            assert (await bench.answer()).uid == 2
            gate.set()
            answer = await bench.answer()
            assert (answer.uid, len(answer.token_ids)) == (1, BYTES_PER_TURN)

    asyncio.run(play())
