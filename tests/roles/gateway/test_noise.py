"""Whatever comes from behind, and whatever comes from before: no crash, no hang, no status of 500."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from stretto.roles import messages as m
from stretto.roles.gateway.openapi import document
from stretto.roles.gateway.operations import operations
from stretto.roles.gateway.stream import merge
from stretto.roles.gateway.wires import ZmqWires
from stretto.tests.roles.gateway.doors import CHOICES, STREAMED, Bench, word
from stretto.tests.roles.gateway.house import MODEL, PATIENCE, House, chorus, ids
from stretto.tests.roles.mangling import altered, mangled, noise

QUICK = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
UID = 1 << 61


def test_noise_from_behind_ends_no_other_request(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    bench = Bench()
    bench.door._uids._next = UID  # so that messages can name the streams
    hit, whole, other = bench.submit(CHOICES), bench.submit(STREAMED), bench.submit(STREAMED)
    wires = ZmqWires.__new__(ZmqWires)
    wires._on_message = bench.door.on_message
    info = m.TokenInfo(5, "x", b"x", -0.5, 1, [m.Alternative(6, "y", b"y", -1.0)])
    words = [
        m.Events([m.Event(hit.uid, 0, "ab", ids(1, 2), logprobs=[info, info], offset=0)]),
        m.Events([word(whole.uid, 0, 3), word(whole.uid, 3, 4, end=True)]),
        m.Rejected(hit.uid, m.Fault(400, "no")),
        m.Attached(whole.uid),
        m.Detached(hit.uid, known=True),
        m.Tokenized(UID + 99, [1], ["a"], 8),
        m.Detokenized(UID + 99, "a"),
    ]

    @settings(QUICK, max_examples=600)
    @given(noise(*words))
    def hear(data: bytes) -> None:
        wires._receive(data)

    hear()
    bench.events(word(other.uid, 0, 2), word(other.uid, 2, 3, end=True))
    assert merge(other.take()) == word(other.uid, 0, 3, end=True)


@pytest.fixture(scope="module")
def fuzzed(shared_house: House) -> House:
    shared_house.reset()
    shared_house.back.script = chorus
    return shared_house


def bodies() -> dict[str, Any]:
    paths = document(MODEL)["paths"]
    return {
        op.path: paths[op.path][op.method.lower()]["requestBody"]["content"]["application/json"]["example"]
        for op in operations()
        if op.body is not None
    }


BODIES = bodies()


@pytest.mark.parametrize("path", BODIES)
def test_a_body_that_something_has_gone_over_is_answered(path: str, fuzzed: House) -> None:
    body = BODIES[path]
    texts = altered(body).map(lambda one: json.dumps(one).encode())

    @settings(QUICK, max_examples=40)
    @given(st.one_of(texts, mangled(json.dumps(body).encode())))
    def ask(data: bytes) -> None:
        answer = fuzzed.http.post(path, content=data, headers={"content-type": "application/json"})
        assert answer.status_code < 500, answer.text

    ask()
    assert fuzzed.live == 0
    assert fuzzed.http.post(path, json=body).status_code == 200


CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2, "n": 2, "logprobs": True}
HANDLE = "lM8BZvskAAAAAM9Js20TkM4hfcDLQM5X8FWVrUA="
FRAMES = [
    {"type": "generate", "id": "a", "request": CHAT, "resumable": True},
    {"type": "generate", "id": "a", "request": {"prompt": [1, 2], "stream": False}},
    {
        "type": "resume",
        "id": "b",
        "stream": HANDLE,
        "request": CHAT,
        "tokens": [1, 2],
        "ends": [{"choice": 0}],
    },
    {"type": "cancel", "id": "a"},
]
texts = st.sampled_from(FRAMES).flatmap(
    lambda frame: st.one_of(
        altered(frame).map(json.dumps),
        mangled(json.dumps(frame).encode()).map(lambda data: data.decode(errors="replace")),
    )
)
frames = st.one_of(
    texts,
    st.binary(max_size=64),
    st.lists(st.text(max_size=20), min_size=1, max_size=5),  # one frame in fragments
)


@settings(QUICK, max_examples=100)
@given(said=st.lists(frames, max_size=6))
def test_whatever_a_socket_says_it_serves_on(said: list[Any], fuzzed: House) -> None:
    with connect(fuzzed.ws_url, open_timeout=PATIENCE, max_size=None) as socket:
        for frame in said:
            socket.send(frame)
        socket.send(json.dumps({"type": "generate", "id": "the last", "request": CHAT}))
        while True:
            heard = json.loads(socket.recv(PATIENCE))
            if heard["id"] == "the last" and heard["type"] == "done":
                break
            assert heard.get("status", 400) < 500, heard
        socket.close(1000)


def test_a_frame_beyond_the_limit_costs_its_socket_and_no_other(fuzzed: House) -> None:
    with connect(fuzzed.ws_url, max_size=None) as huge, connect(fuzzed.ws_url) as other:
        with pytest.raises(ConnectionClosed):
            talk(huge, ["x" * (1 << 20)] * (1 + fuzzed.config.max_body_bytes // (1 << 20)))
        other.send(json.dumps({"type": "generate", "id": "a", "request": {"prompt": "a", "stream": False}}))
        assert json.loads(other.recv(PATIENCE))["type"] == "done"


def talk(socket: ClientConnection, fragments: list[str]) -> None:
    """Say something, and wait for a word."""
    socket.send(fragments)
    socket.recv(PATIENCE)
