"""The scheduler's process, with lists for rings and a counter for the board."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

from stretto.roles import messages as m
from stretto.roles.config import Config
from stretto.roles.scheduler.actor import LOOKS, Scheduler
from stretto.roles.scheduler.keys import page_keys
from stretto.tests.roles.scheduler.device import Device

CONFIG = Config(
    max_model_len=64, max_seqs=4, max_batched_tokens=16, page_size=4, tokenizers=2, detokenizers=2
)
PAGES = 32
encode = msgspec.msgpack.encode


class Ring:
    """Both ends of a ring: what is sent stays until it is drained."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.blocked = False

    def send(self, payload: bytes) -> None:
        self.records.append(payload)

    def drain(self) -> Iterator[bytes]:
        records, self.records = self.records, []
        yield from records

    def take(self, kind: Any) -> list[Any]:
        return [msgspec.msgpack.decode(record, type=kind) for record in self.drain()]


class Meter:
    def __init__(self) -> None:
        self.values: dict[str, float] = defaultdict(float)

    def add(self, name: str, amount: float = 1.0) -> None:
        self.values[name] += amount

    def set(self, name: str, value: float) -> None:
        self.values[name] = value


class Context:
    """What the role uses of `roles.actor.Context`."""

    def __init__(self, config: Config) -> None:
        self.config, self.name, self.meter = config, "scheduler.0", Meter()
        self.rings: dict[str, Ring] = defaultdict(Ring)
        self.woken = asyncio.Event()
        self.crumbs: list[int] = []
        self.grace = 0.0

    def sender(self, peer: str) -> Ring:
        return self.rings[f"to {peer}"]

    def receiver(self, peer: str) -> Ring:
        return self.rings[f"from {peer}"]

    def wake(self) -> None:
        self.woken.set()

    async def wait(self) -> None:
        await self.woken.wait()
        self.woken.clear()

    def at_work(self, uid: int) -> None:
        self.crumbs.append(uid)


class Stage:
    """A scheduler and its neighbours."""

    def __init__(self, config: Config = CONFIG) -> None:
        self.ctx = Context(config)
        self.role = Scheduler(self.ctx)  # type: ignore[arg-type]

    async def open(self) -> Stage:
        await self.role.open()
        for index in range(self.ctx.config.detokenizers):
            self.say(f"detokenizer.{index}", m.Recall())
        return self

    def hello(self, host_pages: int = 0, disk: bool = False, shelved: bytes = b"") -> None:
        hello = m.Hello(PAGES, host_pages, disk, shelved=shelved)
        self.ctx.receiver("executor.0").send(encode(hello))
        self.role.turn()
        core = self.role._core
        assert core is not None
        self.device = Device(core.limits, 1000)

    def say(self, ring: str, message: Any) -> None:
        self.ctx.receiver(ring).send(encode(message))

    def plans(self) -> list[m.Plan]:
        return self.ctx.sender("executor.0").take(m.Plan)

    def save(self) -> list[int]:
        """Answer the moves so far; returns how many pages each save had."""
        saved = []
        for move in self.ctx.sender("executor.0").take(m.Plan | m.Move):
            if isinstance(move, m.Move):
                self.say("executor.0", m.Moved(move.number, b"\x01" * (len(move.host) // 4), 0.0))
                saved += [len(move.host) // 4] if move.kind == "save" else []
        self.ctx.wake()
        return saved

    def compute(self, plans: list[m.Plan]) -> None:
        for plan in plans:
            self.say("executor.0", self.device.run(plan))

    def tokens(self, index: int) -> list[m.Tokens]:
        return self.ctx.sender(f"detokenizer.{index}").take(m.Tokens)

    def run(self) -> None:
        """Turn until the device has nothing to do."""
        while plans := self.plans():
            self.compute(plans)
            self.role.turn()


def request(uid: int, max_tokens: int = 5) -> m.Request:
    prompt = np.array([1, 2, uid], np.int32).tobytes()
    return m.Request(uid, 0.0, prompt, max_tokens, (), m.Sampling(seed=uid), m.Output(0, True))


def staged(body: Any) -> Any:
    """Run an async test body with an open stage."""

    def test() -> None:
        async def main() -> None:
            await body(await Stage().open())

        asyncio.run(main())

    test.__name__, test.__doc__ = body.__name__, body.__doc__
    return test


@staged
async def test_a_request_goes_through(stage: Stage) -> None:
    stage.hello()
    stage.say("tokenizer.1", request(6))
    stage.role.turn()
    stage.run()
    sent = stage.tokens(0)
    assert [opened.uid for message in sent for opened in message.opens] == [6]
    indices = [np.frombuffer(message.indices, np.int32).tolist() for message in sent if message.indices]
    assert indices == [[0], [1], [2], [3], [4]]
    assert sent[-1].ends == [m.End(6, "length")]
    assert stage.tokens(1) == []


@staged
async def test_requests_wait_for_the_first_hello_and_aborts_in_order(stage: Stage) -> None:
    stage.say("tokenizer.0", request(2))
    stage.say("tokenizer.0", request(4))
    stage.say("tokenizer.0", m.Abort(2))
    stage.role.turn()
    assert stage.plans() == []
    stage.hello()
    ends = [end for message in stage.tokens(0) for end in message.ends]
    assert ends == [m.End(2, "abort")]
    assert stage.ctx.meter.values["requests_running"] == 1


@staged
async def test_nothing_is_planned_while_the_ring_is_full(stage: Stage) -> None:
    stage.hello()
    stage.ctx.sender("executor.0").blocked = True
    stage.say("tokenizer.0", request(2))
    stage.role.turn()
    assert stage.plans() == []
    stage.ctx.sender("executor.0").blocked = False
    stage.role.turn()
    assert [plan.step for plan in stage.plans()] == [1, 2]


@staged
async def test_results_come_before_plans_and_requests_join_them(stage: Stage) -> None:
    stage.hello()
    stage.say("tokenizer.0", request(2))
    stage.role.turn()
    stage.compute(stage.plans())
    stage.say("tokenizer.0", request(4))
    stage.role.turn()
    plans = stage.plans()
    assert [plan.step for plan in plans] == [3, 4]
    assert [admit.sampling.seed for admit in plans[0].admits] == [4]


@staged
async def test_a_stop_hit_frees_silently(stage: Stage) -> None:
    stage.hello()
    stage.say("tokenizer.0", request(3, max_tokens=40))
    stage.role.turn()
    stage.say("detokenizer.1", m.StopHit([3, 99]))
    stage.role.turn()
    stage.run()
    assert [message.ends for message in stage.tokens(1)] == [[]]
    assert stage.ctx.meter.values["requests_running"] == 0


@staged
async def test_a_new_executor_replays_running_requests(stage: Stage) -> None:
    stage.hello()
    stage.say("tokenizer.0", request(2))
    stage.role.turn()
    stage.compute(stage.plans())
    stage.role.turn()
    stage.plans()
    stage.role.rewired("executor.0>scheduler.0")
    stage.role.rewired("scheduler.0>executor.0")
    stage.say("tokenizer.0", request(4))
    stage.role.turn()
    assert stage.plans() == []
    stage.hello()
    plans = stage.plans()
    assert plans[0].step == 1
    assert [admit.sampling.seed for admit in plans[0].admits] == [2, 4]
    assert np.frombuffer(plans[0].chunks, np.int32).reshape(-1, 3).tolist() == [[0, 5, 1], [1, 3, 1]]
    stage.compute(plans)
    stage.role.turn()
    stage.run()
    sent = stage.tokens(0)
    indices = [index for message in sent for index in np.frombuffer(message.indices, np.int32).tolist()]
    assert sorted(indices) == sorted([*range(5), *range(5)])
    assert stage.ctx.meter.values["steps_followed_total"] == stage.ctx.meter.values["steps_total"] - 2


@staged
async def test_the_successor_of_a_detokenizer_is_told_what_lives(stage: Stage) -> None:
    stage.hello()
    for uid in (2, 3):
        stage.say("tokenizer.0", request(uid))
    stage.role.turn()
    stage.compute(stage.plans())
    stage.role.turn()
    known = b"".join(message.ids for message in stage.tokens(1))
    stage.role.rewired("detokenizer.1>scheduler.0")
    stage.role.rewired("scheduler.0>detokenizer.1")
    stage.say("detokenizer.1", m.Recall())
    stage.role.turn()
    (told,) = stage.tokens(1)
    assert [(opened.uid, opened.generated) for opened in told.opens] == [(3, known)]
    stage.run()
    assert [end.uid for message in stage.tokens(1) for end in message.ends] == [3]


def held(uid: int, *tokens: int) -> m.Held:
    return m.Held(uid, encode(request(uid)), np.array(tokens, np.int32).tobytes())


@staged
async def test_requests_wait_until_every_detokenizer_has_said_what_it_has(stage: Stage) -> None:
    for index in range(2):
        stage.ctx.receiver(f"detokenizer.{index}").records.clear()
    stage.say("tokenizer.0", request(2))
    stage.say("tokenizer.0", request(4))
    stage.say("tokenizer.0", m.Abort(4))
    stage.say("detokenizer.0", m.Recall([held(2, 7, 8)], last=False))
    stage.say("detokenizer.0", m.StopHit([6]))
    stage.say("detokenizer.1", m.Recall())
    stage.hello()
    assert stage.plans() == []
    stage.say("detokenizer.0", m.Recall([held(6)]))
    stage.role.turn()
    (told,) = stage.tokens(0)
    assert [opened.uid for opened in told.opens] == [2, 4]
    assert np.frombuffer(told.opens[0].generated, np.int32).tolist() == [7, 8]
    assert told.ends == [m.End(4, "abort")]
    assert stage.ctx.meter.values["requests_running"] == 1
    assert stage.ctx.crumbs == [2, 0, 2, 4, 4, 0]
    stage.say("detokenizer.0", m.Recall([held(8)]))
    stage.role.turn()
    assert stage.tokens(0) == []


@staged
async def test_what_a_detokenizer_held_that_died_before_it_was_recalled_is_forgotten(stage: Stage) -> None:
    stage.ctx.receiver("detokenizer.0").records.clear()
    stage.say("detokenizer.0", m.Recall([held(2)]))
    stage.role.turn()
    stage.role.rewired("scheduler.0>detokenizer.0")
    stage.hello()
    stage.say("tokenizer.0", request(4))
    stage.role.turn()
    assert stage.tokens(0) == []
    stage.say("detokenizer.0", m.Recall())
    stage.role.turn()
    assert [opened.uid for message in stage.tokens(0) for opened in message.opens] == [4]


@staged
async def test_nothing_is_made_that_a_detokenizer_cannot_take(stage: Stage) -> None:
    stage.hello()
    stage.say("tokenizer.0", request(2))
    stage.role.turn()
    stage.ctx.sender("detokenizer.1").blocked = True
    stage.compute(stage.plans())
    stage.say("tokenizer.0", request(4))
    stage.role.turn()
    assert stage.plans() == []
    assert [opened.uid for message in stage.tokens(0) for opened in message.opens] == [2]
    stage.ctx.sender("detokenizer.1").blocked = False
    stage.role.turn()
    assert [plan.step for plan in stage.plans()] == [3, 4]


@staged
async def test_requests_that_stand_still_are_looked_for_while_any_live(stage: Stage) -> None:
    stage.hello()
    assert stage.role._alarm.at is None
    stage.say("tokenizer.0", request(2))
    stage.role.turn()
    every = stage.ctx.config.request_stall_seconds / LOOKS
    assert stage.role._alarm.at == stage.role._looked + every
    stage.run()
    assert stage.role._alarm.at is None


@staged
async def test_a_lost_tokenizer_changes_nothing(stage: Stage) -> None:
    stage.hello()
    stage.say("tokenizer.0", request(2))
    stage.role.turn()
    stage.role.rewired("tokenizer.0>scheduler.0")
    stage.run()
    assert [end.reason for message in stage.tokens(0) for end in message.ends] == ["length"]


@staged
async def test_a_result_before_the_hello_is_a_bug(stage: Stage) -> None:
    stage.say("executor.0", m.Result(1, b"", m.Clock(0, 0, 0, 0)))
    with pytest.raises(RuntimeError, match="before its hello"):
        stage.role.turn()


@staged
async def test_metrics_follow_the_core(stage: Stage) -> None:
    stage.hello()
    for uid in range(2, 8):
        stage.say("tokenizer.0", request(uid))
    stage.role.turn()
    values = stage.ctx.meter.values
    assert (values["requests_running"], values["requests_waiting"]) == (4, 2)
    assert values["kv_pages_free"] + values["kv_pages_cached"] + values["kv_pages_owned"] == PAGES
    stage.run()
    assert values["kv_pages"] == PAGES
    assert values["generated_tokens_total"] == 30
    assert values["prompt_tokens_total"] == 18
    assert values["steps_followed_total"] == values["steps_total"] - 1
    assert values["kv_pages_owned"] == 0


@staged
async def test_the_invariants_are_verified_when_it_has_become_quiet(stage: Stage) -> None:
    stage.hello()
    stage.say("tokenizer.0", request(2))
    stage.role.turn()
    stage.run()
    core = stage.role._core
    assert core is not None
    core._requests.batch.memory.pool.take(1)
    await stage.ctx.woken.wait()
    with pytest.raises(AssertionError, match="users differ"):
        stage.role.turn()


@staged
async def test_a_deadline_wakes_the_role_and_ends_the_request(stage: Stage) -> None:
    stage.hello()
    late = time.monotonic() + 0.01
    stage.say("tokenizer.0", msgspec.structs.replace(request(2, max_tokens=40), deadline=late))
    stage.say("tokenizer.0", msgspec.structs.replace(request(4, max_tokens=40), deadline=late + 1000))
    stage.role.turn()
    await stage.ctx.woken.wait()
    stage.role.turn()
    faults = {end.uid: end.fault for message in stage.tokens(0) for end in message.ends}
    assert {uid: fault.code for uid, fault in faults.items() if fault} == {2: "timeout"}
    assert stage.role._alarm.at < late + 1000
    stage.role._alarm.ring()  # early, as timers may be
    stage.role.turn()
    assert stage.role._alarm._timer is not None
    stage.say("tokenizer.0", m.Abort(4))
    stage.role.turn()
    stage.run()
    assert (stage.role._alarm._timer, stage.role._alarm.at) == (None, None)


@staged
async def test_a_question_about_the_cache_is_answered_by_way_of_a_detokenizer(stage: Stage) -> None:
    stage.hello()
    stage.say("tokenizer.0", request(2))
    stage.role.turn()
    stage.run()
    stage.tokens(1)
    stage.say("tokenizer.1", m.Inspect(7, 3, flush=True))
    stage.role.turn()
    (message,) = stage.tokens(1)
    (report,) = message.reports
    assert (report.uid, report.gateway, report.summary.tokens) == (7, 3, 0)
    assert report.flushed > 0


BACK = msgspec.structs.replace(CONFIG, kv_write="back")


async def stopping(grace: float) -> tuple[Stage, asyncio.Task[None]]:
    """A stage that has computed five pages, which only the device has, and is told to stop."""
    stage = await Stage(BACK).open()
    stage.hello(host_pages=16, disk=True)
    stage.say("tokenizer.0", request(1, max_tokens=18))
    stage.role.turn()
    stage.run()
    stage.ctx.grace = grace
    closing = asyncio.create_task(stage.role.close())
    await asyncio.sleep(0)
    return stage, closing


def test_what_only_memory_holds_is_saved_before_the_role_ends() -> None:
    async def main() -> None:
        stage, closing = await stopping(grace=1000.0)
        assert not closing.done()
        assert stage.save() == [5]
        await closing

    asyncio.run(main())


def test_a_disk_that_does_not_answer_in_time_is_not_waited_for() -> None:
    async def main() -> None:
        stage, closing = await stopping(grace=0.0)
        await closing
        assert stage.ctx.sender("executor.0").take(m.Move) == []

    asyncio.run(main())


def test_a_request_that_comes_with_the_hello_finds_what_is_on_disk() -> None:
    async def main() -> None:
        stage = await Stage(BACK).open()
        prompt = np.arange(9, dtype=np.int32)
        asked = msgspec.structs.replace(request(1), prompt_ids=prompt.tobytes())
        stage.say("tokenizer.0", asked)
        stage.hello(16, True, b"".join(page_keys(prompt, 4, "")))
        (move,) = stage.ctx.sender("executor.0").take(m.Move)
        assert (move.kind, len(move.host)) == ("load", 8)

    asyncio.run(main())
