"""Whatever comes into the mailbox, the role goes on, with a line in its log at most."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings

from stretto.roles import messages as m
from stretto.roles.tokenizer.actor import Tokenizer
from stretto.tests.roles.mangling import noise
from stretto.tests.roles.tokenizer.test_actor import FakeContext

UID = (1 << 62) + 1
SUBMIT = m.Submit(
    UID, 1, 0.5, m.SamplingParams(stop=("x",), bad_words=("y",)), "a b", generated={UID: b"1234"}
)
CHAT = m.Submit(UID, 1, 0.5, m.SamplingParams(), None, [{"role": "user", "content": "Hi"}], {"x": 1})
MESSAGES = [
    SUBMIT,
    CHAT,
    m.Cancel(UID),
    m.Tokenize(UID, 1, "a"),
    m.Detokenize(UID, 1, [3, 4]),
    m.CacheQuery(UID, 1),
]


class Gateways:
    """All that is told to gateways."""

    def __init__(self) -> None:
        self.told: list[tuple[int, bytes]] = []

    def __contains__(self, gateway: int) -> bool:
        return 0 <= gateway < 3

    def send(self, gateway: int, data: bytes) -> None:
        self.told.append((gateway, data))


@pytest.fixture
def role(small_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An open role whose mailbox is bypassed."""
    ctx: Any = FakeContext(tmp_path_factory.mktemp("run"), small_dir)
    ctx.at_work = lambda uid, lane=0: memoryview(bytearray(8)).cast("q").__setitem__(0, uid)
    role = Tokenizer(ctx)

    async def play() -> None:
        await role.open()
        await role.close()

    asyncio.run(play())
    role._gateways = Gateways()  # type: ignore[assignment]
    return SimpleNamespace(handle=role._handle, ctx=ctx, gateways=role._gateways)


@pytest.mark.filterwarnings("error")
def test_noise_in_the_mailbox_ends_nothing(role: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)

    @settings(max_examples=600, deadline=None)
    @example(msgspec.msgpack.encode(m.Tokenize(1 << 63, 1, "a")))
    @given(noise(*MESSAGES))
    def hear(data: bytes) -> None:
        caplog.clear()
        role.handle(data)
        assert len(caplog.records) <= 1

    hear()
    role.ctx.ring.sent.clear()
    role.handle(msgspec.msgpack.encode(SUBMIT))
    (request,) = role.ctx.ring.sent
    assert (request.uid, request.output.gateway) == (UID, 1)
