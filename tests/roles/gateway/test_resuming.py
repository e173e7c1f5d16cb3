"""Streams of the WebSocket that outlive their socket."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from stretto.roles import messages as m
from stretto.tests.roles.gateway.house import PATIENCE, House, chorus, ids, silence
from stretto.tests.roles.gateway.test_websocket import CHAT, Socket


@pytest.fixture(autouse=True)
def forgetful(house: House) -> Iterator[None]:
    """Nobody comes back for what a test has left."""
    yield
    house.call(lambda: [house.door.leave(stream) for stream in house.door.streams])


@contextmanager
def socket(house: House) -> Iterator[Socket]:
    with connect(house.ws_url, open_timeout=PATIENCE, max_size=None, close_timeout=1) as connection:
        yield Socket(connection)


def start(ws: Socket, **fields: Any) -> str:
    """Ask for a resumable request "a"; its handle."""
    ws.say(type="generate", id="a", resumable=True, request={**CHAT, **fields})
    accepted = ws.hear()
    assert (accepted["type"], accepted["id"], accepted["resume_seconds"]) == ("accepted", "a", 60.0)
    return str(accepted["stream"])


def resume(ws: Socket, handle: str, tokens: list[int], ends: Any = (), **fields: Any) -> None:
    ws.say(type="resume", id="b", stream=handle, tokens=tokens, ends=list(ends), request={**CHAT, **fields})


def told(house: House) -> m.ToDetokenizer:
    return house.back.told.get(timeout=PATIENCE)


def vanish(ws: Socket) -> None:
    ws.connection.socket.shutdown(2)


USAGE = m.Usage(5, 3)


def test_a_lost_socket_s_stream_goes_on_at_another(house: House) -> None:
    house.back.script = silence
    with socket(house) as ws:
        handle = start(ws)
        submit = house.submitted()
        house.send(m.Event(submit.uid, 0, "ab", ids(1, 2)))
        assert ws.hear() == {"type": "delta", "id": "a", "index": 0, "text": "ab", "tokens": 2}
        vanish(ws)
        assert told(house) == m.Detach(submit.uid, 0)
    assert house.live == 1
    with socket(house) as ws:
        resume(ws, handle, [1])
        assert told(house) == m.Attach(submit.uid, 0, 1, submit.key)
        house.send(m.Event(submit.uid, 1, "bc", ids(2, 3), "stop", usage=USAGE, offset=1))
        delta, done = ws.hear_to_the_end()
        assert delta == {"type": "delta", "id": "b", "index": 1, "text": "bc", "tokens": 2}
        assert (done["type"], done["id"], done["usage"]["completion_tokens"]) == ("done", "b", 3)
    assert house.live == 0
    assert house.back.cancels.empty()


def test_who_says_goodbye_wants_nothing_kept(house: House) -> None:
    house.back.script = silence
    with socket(house) as ws:
        start(ws)
        uid = house.submitted().uid
        ws.connection.close(1000)
        assert house.cancelled() == uid


def test_a_socket_that_still_seems_open_hears_no_more(house: House) -> None:
    house.back.script = silence
    with socket(house) as old, socket(house) as new:
        handle = start(old)
        uid = house.submitted().uid
        resume(new, handle, [0])
        told(house)
        house.send(m.Event(uid, 0, "a", ids(1), "stop", usage=USAGE))
        assert new.hear()["text"] == "a"
        old.generate("c", model="huge")
        assert old.hear()["id"] == "c"  # and nothing of "a" before


def test_what_is_not_streamed_is_given_whole(house: House) -> None:
    house.back.script = silence
    with socket(house) as ws:
        handle = start(ws, stream=False)
        uid = house.submitted().uid
        vanish(ws)
        told(house)
    with socket(house) as ws:
        resume(ws, handle, [], stream=False)
        attach = told(house)
        assert isinstance(attach, m.Attach)
        assert (attach.uid, attach.index) == (uid, 0)
        house.send(m.Event(uid, 0, "all", ids(1, 2, 3), "stop", usage=USAGE))
        assert ws.hear()["text"] == "all"


def test_of_several_choices_only_those_that_live_are_asked_for(house: House) -> None:
    house.back.script = silence
    with socket(house) as ws:
        handle = start(ws, n=2)
        uid = house.submitted().uid
        house.send(m.Event(uid, 0, "x", ids(1, 2), "stop", usage=m.Usage(5, 2)))
        end = ws.hear()
        counts = {"prompt_tokens": 5, "completion_tokens": 2, "cached_tokens": 0}
        assert (end["finish_reason"], end["usage"]) == ("stop", counts)
        vanish(ws)
        farewells = [m.Keep(uid, 0), m.Detach(uid, 0), m.Detach(uid + 1, 0)]
        assert [told(house) for _ in farewells] == farewells
    ends = [{"choice": 0, "finish_reason": "stop", "usage": counts}]
    with socket(house) as ws:
        resume(ws, handle, [2, 0], ends, n=2)
        attach = told(house)
        assert isinstance(attach, m.Attach)
        assert (attach.uid, attach.index) == (uid + 1, 0)
        house.send(m.Event(uid + 1, 0, "y", ids(3), "length", usage=m.Usage(5, 1)))
        _, done = ws.hear_to_the_end()
        assert [one["finish_reason"] for one in done["choices"]] == ["stop", "length"]
        assert done["usage"]["total_tokens"] == 8
    with socket(house) as ws:  # both ends came, but not the last frame
        counts["completion_tokens"] = 1
        resume(ws, handle, [2, 1], [*ends, {**ends[0], "choice": 1}], n=2)
        assert ws.hear()["usage"]["completion_tokens"] == 2


def test_a_stream_that_is_gone_is_not_found(house: House) -> None:
    with socket(house) as ws:
        handle = start(ws)
        ws.hear_to_the_end()
        resume(ws, handle, [2])
        uid = house.submitted().uid
        told(house)
        house.call(house.door.on_message, m.Detached(uid, known=False))
        error = ws.hear()
        assert (error["status"], error["error"]["code"]) == (404, "stream_not_found")
        resume(ws, "nonsense", [])
        assert ws.hear()["error"]["code"] == "stream_not_found"
        resume(ws, handle, [1, 2])
        assert ws.hear()["error"]["param"] == "tokens"


def test_a_server_may_keep_nothing(build: Callable[..., House]) -> None:
    house = build(resume_seconds=0)
    house.back.script = silence
    with socket(house) as ws:
        ws.say(type="generate", id="a", resumable=True, request=CHAT)
        assert ws.hear() == {"type": "accepted", "id": "a", "stream": None, "resume_seconds": 0.0}
        uid = house.submitted().uid
        vanish(ws)
        assert house.cancelled() == uid


def test_token_ids_are_counted_by_who_gets_them(house: House) -> None:
    house.back.script = chorus
    with socket(house) as ws:
        start(ws, return_token_ids=True)
        delta = ws.hear()
        assert ("tokens" in delta, delta["token_ids"]) == (False, [10])


def test_a_gateway_that_is_replaced_sends_away_who_can_come_back(house: House) -> None:
    house.back.script = silence
    try:
        with socket(house) as resumable, socket(house) as bound:
            start(resumable)
            bound.generate("x")
            uids = [house.submitted().uid for _ in range(2)]
            house.loop.call_soon_threadsafe(lambda: house.loop.create_task(house.sessions.retire()))
            with pytest.raises(ConnectionClosed, match="1012"):
                resumable.hear()
            assert told(house) == m.Detach(uids[0], 0)
            house.send(m.Event(uids[1], 0, "y", ids(1), "stop", usage=USAGE))
            assert [frame["type"] for frame in bound.hear_to_the_end()] == ["delta", "done"]
            with pytest.raises(ConnectionClosed, match="1012"):
                bound.hear()
    finally:
        house.sessions.retiring = False
