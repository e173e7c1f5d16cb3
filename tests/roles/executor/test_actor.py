from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

from stretto.roles import messages as m
from stretto.roles.actor import SetupError
from stretto.roles.config import Config
from stretto.roles.executor import actor
from stretto.roles.executor.actor import Executor

_decode = msgspec.msgpack.Decoder(m.ToSchedulerFromExecutor).decode
TO_SCHEDULER, FROM_SCHEDULER = "executor.0>scheduler.0", "scheduler.0>executor.0"


class Wires:
    """A context whose rings are lists."""

    name = "executor.0"

    def __init__(self, config: Config) -> None:
        self.config = config
        self.told: list[Any] = []
        self.sent: list[m.Hello | m.Result] = []
        self.inbox: list[bytes] = []
        self.meter, self.counted = self, Counter[str]()
        self._woken = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def add(self, name: str, amount: float) -> None:
        self.counted[name] += int(amount)

    def sender(self, peer: str) -> Wires:
        assert peer == "scheduler.0"
        return self

    def receiver(self, peer: str) -> Wires:
        return self.sender(peer)

    def send(self, payload: bytes) -> None:
        self.sent.append(_decode(payload))

    def drain(self) -> Iterator[bytes]:
        while self.inbox:
            yield self.inbox.pop(0)

    def tell(self, message: Any) -> None:
        self.told.append(message)

    def wake(self) -> None:
        self._woken.set()

    def wake_from_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._woken.set)

    async def wait(self) -> None:
        await self._woken.wait()
        self._woken.clear()

    def post(self, plan: m.ToExecutor) -> None:
        self.inbox.append(msgspec.msgpack.encode(plan))


async def until(wires: Wires, role: Executor, count: int) -> list[Any]:
    """Turn the role until it has sent `count` messages."""
    role.turn()
    while len(wires.sent) < count:
        await wires.wait()
        role.turn()
    return wires.sent


def first(step: int, ids: list[int]) -> m.Plan:
    return m.Plan(
        step=step,
        admits=[m.Admit(0, 0, np.arange(2, dtype=np.int32).tobytes(), m.Sampling())],
        chunks=np.array([0, len(ids), 1], np.int32).tobytes(),
        chunk_ids=np.array(ids, np.int32).tobytes(),
    )


def decode(step: int) -> m.Plan:
    return m.Plan(step=step, decodes=np.array([0], np.int32).tobytes())


def tokens(results: list[Any]) -> list[int]:
    return [int(np.frombuffer(result.tokens, np.int32)[0]) for result in results]


@pytest.fixture
def config(make_tiny: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setenv("NUMBA_CACHE_DIR", "")
    return Config(
        model_dir=str(make_tiny()),
        cache_dir=str(tmp_path),
        device="cpu",
        kv_memory="512tokens",
        max_seqs=4,
        max_model_len=256,
        max_batched_tokens=64,
    )


def live(config: Config, act: Any) -> Any:
    """Run `act(wires, role)` with an opened role."""

    async def main() -> Any:
        wires = Wires(config)
        role = Executor(wires)  # type: ignore[arg-type]
        facts = await role.open()
        try:
            return facts, await act(wires, role)
        finally:
            await role.close()

    return asyncio.run(main())


def test_it_boots_says_so_and_says_hello_first(config: Config) -> None:
    async def act(wires: Wires, role: Executor) -> list[str]:
        assert wires.sent == []
        assert await until(wires, role, 1) == [m.Hello(pages=32)]
        return [message.text for message in wires.told]

    facts, told = live(config, act)
    assert facts == {
        "device": "cpu",
        "dtype": "float32",
        "pages": 32,
        "page_size": 16,
        "model": config.model_dir,
    }
    assert (told[0], told[-1]) == (f"loading {config.model_dir}", "warming up")


def test_the_pace_of_prompts_is_measured_where_the_chunks_depend_on_it(config: Config) -> None:
    async def act(wires: Wires, role: Executor) -> m.Hello:
        hello, *_ = await until(wires, role, 1)
        return hello

    _, hello = live(msgspec.structs.replace(config, max_batched_tokens=0), act)
    assert hello.prefill_rate > 0


def test_plans_are_answered_in_order_however_many_are_queued(config: Config) -> None:
    async def act(wires: Wires, role: Executor) -> list[Any]:
        for plan in (first(1, [5, 6]), *(decode(step) for step in range(2, 7))):
            wires.post(plan)
        return (await until(wires, role, 7))[1:]

    _, results = live(config, act)
    assert [result.step for result in results] == [1, 2, 3, 4, 5, 6]
    assert results[0].clock.idle == 0


def test_a_new_scheduler_gets_a_hello_and_an_executor_that_has_forgotten(config: Config) -> None:
    async def act(wires: Wires, role: Executor) -> tuple[list[Any], list[Any]]:
        plans = [first(1, [5, 6]), decode(2), decode(3)]
        for plan in plans:
            wires.post(plan)
        before = list(await until(wires, role, 4))
        wires.post(decode(4))
        wires.post(decode(5))
        wires.post(decode(6))
        role.turn()
        wires.inbox.clear()
        wires.sent.clear()
        role.rewired(FROM_SCHEDULER)
        role.rewired(TO_SCHEDULER)
        assert await until(wires, role, 1) == [m.Hello(pages=32)]
        assert role._runner.in_flight == 0
        for plan in plans:
            wires.post(plan)
        return before, list(await until(wires, role, 4))

    _, (before, after) = live(config, act)
    assert [result.step for result in after[1:]] == [1, 2, 3]
    assert tokens(after[1:]) == tokens(before[1:])


def test_moves_begin_as_they_come_and_a_new_scheduler_finds_the_host_empty(config: Config) -> None:
    hosted = msgspec.structs.replace(config, host_kv_memory="512tokens")

    async def act(wires: Wires, role: Executor) -> None:
        hello = (await until(wires, role, 1))[0]
        assert (hello.pages, hello.host_pages, hello.disk) == (32, 32, False)
        assert hello.copy_rate > 0
        out = m.Move(1, "out", np.arange(2, dtype=np.int32).tobytes(), np.arange(2, dtype=np.int32).tobytes())
        wires.post(first(1, [5, 6]))
        wires.post(out)
        answers = (await until(wires, role, 3))[1:]
        assert {type(answer) for answer in answers} == {m.Result, m.Moved}
        moved = next(answer for answer in answers if isinstance(answer, m.Moved))
        assert (moved.number, moved.ok) == (1, b"\x01\x01")
        assert wires.counted["kv_out_bytes_total"] > 0
        wires.post(msgspec.structs.replace(out, number=2))
        role.turn()
        wires.sent.clear()
        role.rewired(TO_SCHEDULER)
        assert (await until(wires, role, 1))[0] == hello
        assert role._tiers is not None
        assert role._tiers.transfers.idle

    live(hosted, act)


def test_what_is_on_disk_comes_with_the_hello(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actor, "INDEX_SECONDS", 1000.0)
    kept, key = msgspec.structs.replace(config, disk_kv=f"{config.cache_dir}/kv"), b"k" * 16

    async def save(wires: Wires, role: Executor) -> None:
        assert (await until(wires, role, 1))[0].shelved == b""
        wires.post(m.Move(1, "out", bytes(4), bytes(4)))
        wires.post(m.Move(2, "save", bytes(4), keys=key))
        await until(wires, role, 3)

    async def look(wires: Wires, role: Executor) -> None:
        assert (await until(wires, role, 1))[0].shelved == key

    live(kept, save)
    live(kept, look)


def test_a_move_without_lower_tiers_is_a_bug(config: Config) -> None:
    async def act(wires: Wires, role: Executor) -> None:
        wires.post(m.Move(1, "out", bytes(4), bytes(4)))
        with pytest.raises(RuntimeError, match="move 1 to or from memory that there is not"):
            role.turn()

    live(config, act)


def test_what_the_device_raises_ends_the_role(config: Config) -> None:
    async def act(wires: Wires, role: Executor) -> None:
        wires.post(first(1, [5, 4000]))
        await until(wires, role, 2)

    with pytest.raises(IndexError):
        live(config, act)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"kv_memory": "a lot"}, "--kv-memory 'a lot' is not a size; write it as 512MiB, 2GiB or 4096tokens"),
        ({"model_dir": "/nowhere"}, "/nowhere/config.json does not exist; a model directory needs it"),
    ],
)
def test_what_the_user_can_mend_ends_the_boot_with_one_sentence(
    config: Config, change: dict[str, str], sentence: str
) -> None:
    async def main() -> None:
        wires = Wires(msgspec.structs.replace(config, **change))
        with pytest.raises(SetupError) as caught:
            await Executor(wires).open()  # type: ignore[arg-type]
        assert str(caught.value) == sentence

    asyncio.run(main())
