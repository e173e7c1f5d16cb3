"""The scheduler's role and the detokenizers' cores, with rings that lose what is in them when one dies.

Whatever dies, and whenever, every request ends once, with the tokens, text and scores of a quiet run.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pytest

from stretto.roles import messages as m
from stretto.roles.detokenizer.core import Core, Turn
from stretto.roles.detokenizer.scheme import ByteLevelScheme, Scheme
from stretto.tests.roles.detokenizer.conftest import sorted_byte_names
from stretto.tests.roles.scheduler.device import Device
from stretto.tests.roles.scheduler.test_actor import Stage

VOCABULARY = 128
DETOKENIZERS = 2
encode = msgspec.msgpack.encode


@dataclass
class Journal:
    """What a gateway has delivered of one sequence."""

    request: m.Request
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    scores: list[m.TokenInfo] = field(default_factory=list)
    prompt: list[m.TokenInfo | None] | None = None
    usage: m.Usage | None = None
    end: tuple[str | None, str | int | None] | None = None

    def deliver(self, event: m.Event) -> None:
        """Take what is news; what is told again must be the same."""
        ids = np.frombuffer(event.token_ids, np.int32).tolist()
        known, shown = len(self.tokens) - event.index, len(self.text) - event.offset
        assert known >= 0, f"token {event.index} of {event.uid} came when {len(self.tokens)} was due"
        assert shown >= 0, f"character {event.offset} of {event.uid} came when {len(self.text)} was due"
        assert self.tokens[event.index :][: len(ids)] == ids[:known]
        assert self.text[event.offset :][: len(event.text)] == event.text[:shown]
        self.tokens += ids[known:]
        self.text += event.text[shown:]
        self.scores += event.logprobs[known:]
        if event.prompt_logprobs is not None:
            assert self.prompt in (None, event.prompt_logprobs)
            self.prompt = event.prompt_logprobs
        if event.finish_reason is not None:
            assert event.fault is None, event.fault
            self.usage, self.end = event.usage, (event.finish_reason, event.stop_reason)

    @property
    def outcome(self) -> tuple[Any, ...]:
        """All that a client sees, but for how much of the prompt was cached."""
        assert self.usage is not None
        counts = self.usage.prompt_tokens, self.usage.completion_tokens
        return self.tokens, self.text, self.scores, self.prompt, counts, self.end


class House:
    """A gateway, the scheduler, its device and two detokenizers."""

    def __init__(self, scheme: Scheme, requests: list[m.Request]) -> None:
        self.scheme = scheme
        self.journals = {uid: Journal(request) for request in requests for uid in uids_of(request)}
        self.requests = requests
        self.stage = Stage()
        self.details = [Core(scheme) for _ in range(DETOKENIZERS)]
        self.wires: list[deque[Turn]] = [deque() for _ in range(DETOKENIZERS)]
        """What a detokenizer has sent and the gateway has not got."""

    async def open(self) -> House:
        await self.stage.open()
        self.stage.hello()
        self.device = self.stage.device = Device(self.stage.device.limits, VOCABULARY)
        self.submit(self.requests)
        return self

    # What moves things.

    def submit(self, requests: list[m.Request]) -> None:
        for request in requests:
            live = [uid for uid in uids_of(request) if self.journals[uid].end is None]
            if live:
                known = np.array(self.journals[request.uid].tokens, np.int32).tobytes()
                self.stage.say("tokenizer.0", msgspec.structs.replace(request, generated=known))

    def compute(self) -> None:
        """The device runs a step."""
        ring = self.stage.ctx.sender("executor.0")
        if ring.records:
            plan = msgspec.msgpack.decode(ring.records.pop(0), type=m.Plan)
            self.stage.say("executor.0", self.stage.device.run(plan))

    def schedule(self) -> None:
        self.stage.role.turn()
        core = self.stage.role._core
        assert core is not None
        core.check()

    def detokenize(self, index: int) -> None:
        """A detokenizer takes in one message."""
        ring = self.stage.ctx.sender(f"detokenizer.{index}")
        if ring.records:
            self.details[index].feed(msgspec.msgpack.decode(ring.records.pop(0), type=m.Tokens))

    def tell(self, index: int) -> None:
        """It sends what it has."""
        turn = self.details[index].take()
        self.wires[index].append(turn)
        if turn.stopped:
            self.stage.say(f"detokenizer.{index}", m.StopHit(turn.stopped))

    def deliver(self, index: int) -> None:
        """The gateway gets one message."""
        for event in self.wires[index].popleft().events.get(0, []) if self.wires[index] else ():
            journal = self.journals[event.uid]
            if journal.end is None:
                journal.deliver(event)
            else:
                self.stage.say("tokenizer.0", m.Abort(event.uid))

    # What goes wrong.

    def kill_device(self) -> None:
        self.stage.ctx.sender("executor.0").records.clear()
        self.stage.ctx.receiver("executor.0").records.clear()
        self.stage.role.rewired("executor.0>scheduler.0")
        self.stage.hello()
        self.stage.device = Device(self.stage.device.limits, VOCABULARY)

    def kill_detokenizer(self, index: int) -> None:
        name = f"detokenizer.{index}"
        self.stage.ctx.sender(name).records.clear()
        self.stage.ctx.receiver(name).records.clear()
        self.wires[index].clear()
        self.details[index] = Core(self.scheme)
        self.stage.role.rewired(f"{name}>scheduler.0")
        self.stage.role.rewired(f"scheduler.0>{name}")
        self.stage.say(name, m.Recall())
        self.submit(self.requests)

    async def kill_scheduler(self) -> None:
        self.stage = Stage()
        await self.stage.role.open()
        for index, core in enumerate(self.details):
            for recall in core.recall():
                self.stage.say(f"detokenizer.{index}", recall)
        self.stage.hello()
        self.stage.device = Device(self.stage.device.limits, VOCABULARY)
        self.submit(self.requests)

    def kill_tokenizer(self) -> None:
        self.stage.ctx.receiver("tokenizer.0").records.clear()
        self.submit(self.requests)

    async def kill(self, dice: random.Random) -> None:
        """Something dies, or two things at once."""
        for what in dice.sample(range(5), dice.choice([1, 1, 2])):
            match what:
                case 0:
                    self.kill_device()
                case 1:
                    await self.kill_scheduler()
                case 2:
                    self.kill_tokenizer()
                case _:
                    self.kill_detokenizer(what - 3)

    async def run(self, dice: random.Random, deaths: int) -> None:
        """Turn everything in any order until all has ended."""
        moves = [self.compute, self.schedule]
        for index in range(DETOKENIZERS):
            moves += [
                lambda index=index: self.detokenize(index),
                lambda index=index: self.tell(index),
                lambda index=index: self.deliver(index),
            ]
        for step in range(20_000):
            dice.choice(moves)()
            if deaths and dice.random() < 0.01:
                deaths -= 1
                await self.kill(dice)
            if step % 50 == 0 and all(journal.end for journal in self.journals.values()):
                break
        self._settle(moves)

    def _settle(self, moves: list[Any]) -> None:
        """All has ended; what nobody waits for any more must come to its end, too."""
        assert [uid for uid, journal in self.journals.items() if journal.end is None] == []
        for _ in range(300):
            for move in moves:
                move()
        core = self.stage.role._core
        assert core is not None
        assert not core.busy
        assert [len(detokenizer) for detokenizer in self.details] == [0] * DETOKENIZERS


def uids_of(request: m.Request) -> range:
    return range(request.uid, request.uid + (request.beams.n if request.beams else 1))


def make(uid: int, length: int, sampling: m.Sampling, prompt: int = 5, **fields: Any) -> m.Request:
    ids = np.arange(prompt, dtype=np.int32).tobytes()
    wants = {"logprobs": sampling.logprobs, "prompt_logprobs": sampling.prompt_logprobs, "prompt_ids": ids}
    output = m.Output(0, fields.pop("stream", True), fields.pop("stop", ()), **wants)
    return m.Request(uid, float(uid), ids, length, fields.pop("stop_ids", ()), sampling, output, **fields)


REQUESTS = [
    make(10, 20, m.Sampling(seed=1)),
    make(11, 20, m.Sampling(seed=2), leader=10),
    make(20, 16, m.Sampling(seed=3, logprobs=2)),
    make(21, 9, m.Sampling(seed=4, prompt_logprobs=1), prompt=20),
    make(22, 24, m.Sampling(seed=5), stop=("A", "b", "xyz")),
    make(23, 18, m.Sampling(seed=6, logprobs=0), stream=False),
    make(24, 24, m.Sampling(seed=7), stop_ids=tuple(range(0, 128, 9))),
    make(25, 0, m.Sampling(seed=8, prompt_logprobs=0), prompt=18),
    make(30, 5, m.Sampling(logprobs=1), beams=m.Beams(3, 2)),
]


@pytest.fixture(scope="module")
def scheme() -> Scheme:
    """Ids are bytes."""
    from tokenizers import Tokenizer, decoders, models

    entries = {entry: i for i, entry in enumerate(sorted_byte_names())}
    vocabulary = Tokenizer(models.BPE(entries, []))
    vocabulary.decoder = decoders.ByteLevel()
    return ByteLevelScheme(vocabulary)


def play(scheme: Scheme, seed: int, deaths: int) -> dict[int, tuple[Any, ...]]:
    async def main() -> House:
        house = await House(scheme, REQUESTS).open()
        await house.run(random.Random(seed), deaths)
        return house

    return {uid: journal.outcome for uid, journal in asyncio.run(main()).journals.items()}


@pytest.fixture(scope="module")
def quiet(scheme: Scheme) -> dict[int, tuple[Any, ...]]:
    return play(scheme, 0, 0)


@pytest.mark.parametrize("seed", range(24))
def test_every_request_ends_once_as_in_a_quiet_run(scheme: Scheme, quiet: Any, seed: int) -> None:
    assert play(scheme, seed, deaths=12) == quiet
