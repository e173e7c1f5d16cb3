"""Whatever comes into the mailbox, streams go on; what is said there in the right words is obeyed."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings

from stretto.roles import messages as m
from stretto.roles.detokenizer.actor import Detokenizer
from stretto.tests.roles.detokenizer.test_actor import FakeContext
from stretto.tests.roles.detokenizer.test_core import ids, opened, step
from stretto.tests.roles.mangling import noise

UID = 1 << 62
CALLS = [m.Attach(UID, 1, 1, 7), m.Detach(UID, 0), m.Detach(UID), m.Keep(UID, 1), m.Attach(5, 1, 0, 7)]


@pytest.fixture
def role(tmp_path: Path, byte_level: Any) -> Detokenizer:
    """An open role whose mailbox is bypassed."""
    byte_level.save(str(tmp_path / "tokenizer.json"))
    ctx: Any = FakeContext(tmp_path, tmp_path)
    ctx.at_work = lambda uid: None
    role = Detokenizer(ctx)

    async def play() -> None:
        await role.open()
        await role.close()

    asyncio.run(play())
    return role


def test_noise_in_the_mailbox_ends_nothing(role: Detokenizer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    core = role._core
    core.feed(step([opened(UID, retain=9.0, key=7), opened(2)], [(UID, 97, 0), (2, 97, 0)]))

    @settings(max_examples=600, deadline=None)
    @given(noise(*CALLS))
    @example(msgspec.msgpack.encode({"type": "attach", "uid": UID, "gateway": 1, "index": -9, "key": 7}))
    def hear(data: bytes) -> None:
        caplog.clear()
        role._handle(data)
        assert len(caplog.records) <= 1
        core.take()

    hear()
    core.feed(step(tokens=[(UID, 98, 1), (2, 98, 1)]))
    core.attach(m.Attach(UID, 0, 0, 7))
    said = {event.uid: event for event in core.take().events[0]}
    assert said[UID].token_ids == ids(97, 98)
    assert said[2].token_ids == ids(98)
