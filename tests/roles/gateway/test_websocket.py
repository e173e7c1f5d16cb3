"""The WebSocket protocol, as its docstring promises it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from stretto.roles import messages as m
from stretto.roles.gateway import http, websocket
from stretto.roles.gateway.door import Door
from stretto.roles.gateway.intake import Intake
from stretto.roles.gateway.sessions import Sessions
from stretto.roles.metrics import Meter
from stretto.tests.roles.gateway.house import PATIENCE, House, chorus, ids, silence

CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
USAGE = {
    "prompt_tokens": 5,
    "completion_tokens": 2,
    "total_tokens": 7,
    "prompt_tokens_details": {"cached_tokens": 3},
}


class Socket:
    """A client that speaks JSON."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    def say(self, **frame: Any) -> None:
        self.connection.send(json.dumps(frame))

    def generate(self, id: str, **fields: Any) -> None:
        self.say(type="generate", id=id, request={**CHAT, **fields})

    def hear(self) -> Any:
        return json.loads(self.connection.recv(PATIENCE))

    def hear_to_the_end(self) -> list[Any]:
        frames = [self.hear()]
        while frames[-1]["type"] == "delta":
            frames.append(self.hear())
        return frames


@pytest.fixture
def ws(house: House) -> Iterator[Socket]:
    with connect(house.ws_url, open_timeout=PATIENCE, max_size=None) as connection:
        yield Socket(connection)


def abort(uid: int) -> m.Event:
    return m.Event(uid, 0, "", finish_reason="abort", usage=m.Usage(5, 0))


def test_a_request_streams_by_default(ws: Socket) -> None:
    ws.generate("a")
    assert ws.hear_to_the_end() == [
        {"type": "delta", "id": "a", "index": 0, "text": "Hello"},
        {"type": "delta", "id": "a", "index": 1, "text": ", wörld"},
        {"type": "done", "id": "a", "finish_reason": "stop", "stop_reason": None, "usage": USAGE},
    ]


def test_without_streaming_the_end_has_the_whole_text(ws: Socket) -> None:
    ws.generate("a", stream=False, return_token_ids=True)
    assert ws.hear() == {
        "type": "done",
        "id": "a",
        "finish_reason": "stop",
        "stop_reason": None,
        "usage": USAGE,
        "text": "Hello, wörld",
        "token_ids": [7, 8],
        "prompt_token_ids": [1, 2, 3, 4, 5],
    }


def test_token_ids_come_where_asked_for(ws: Socket) -> None:
    ws.generate("a", return_token_ids=True)
    *deltas, done = ws.hear_to_the_end()
    assert [delta["token_ids"] for delta in deltas] == [[7], [8]]
    assert done["prompt_token_ids"] == [1, 2, 3, 4, 5]
    assert "token_ids" not in done


def test_a_prompt_makes_a_completion(ws: Socket, house: House) -> None:
    ws.say(type="generate", id="a", request={"prompt": [1, 2]})
    assert ws.hear_to_the_end()[-1]["type"] == "done"
    assert (submit := house.submitted()).prompt == [1, 2]
    assert submit.messages is None


LOGPROBS = [
    {"id": 10, "token": "0", "bytes": [48], "logprob": -4.0, "rank": 2},
    {"id": 20, "token": "ö", "bytes": [195, 182], "logprob": -0.25, "rank": 2},
]
TOP = [{"id": 20, "token": "ö", "bytes": [195, 182], "logprob": -0.25}]


def test_several_choices_are_told_apart_and_each_says_how_it_ends(ws: Socket, house: House) -> None:
    house.back.script = chorus
    ws.generate("a", n=2)
    *deltas, done = ws.hear_to_the_end()
    choices = [[delta for delta in deltas if delta["choice"] == i] for i in range(2)]
    end = {"finish_reason": "length", "stop_reason": None}
    for i, said in enumerate(choices):
        assert said == [
            {"type": "delta", "id": "a", "index": 0, "choice": i, "text": str(i)},
            {"type": "delta", "id": "a", "index": 1, "choice": i, "text": "ö"},
            {"type": "delta", "id": "a", "index": 2, "choice": i, "text": "", **end},
        ]
    assert done["choices"] == [{"choice": 0, **end}, {"choice": 1, **end}]
    assert done["usage"]["completion_tokens"] == 4


def test_several_choices_that_are_not_streamed_are_in_the_last_frame(ws: Socket, house: House) -> None:
    house.back.script = chorus
    ws.generate("a", n=1, best_of=3, stream=False)
    assert ws.hear()["text"] == "2ö"
    ws.say(type="generate", id="b", request={"prompt": ["x", "y"], "stream": False, "echo": True})
    assert [choice["text"] for choice in ws.hear()["choices"]] == ["He0ö", "He0ö"]


@pytest.mark.parametrize("stream", [True, False])
def test_logprobs_are_a_list_of_tokens(ws: Socket, house: House, stream: bool) -> None:
    house.back.script = chorus
    ws.generate("a", logprobs=True, top_logprobs=1, prompt_logprobs=0, stream=stream)
    frames = ws.hear_to_the_end()
    told = [info for frame in frames for info in frame.get("logprobs", [])]
    assert told == [{**info, "top": TOP} for info in LOGPROBS]
    prompt = {"id": 2, "token": "e", "bytes": [101], "logprob": -0.5, "rank": 2, "top": []}
    assert frames[0]["prompt_logprobs"] == [None, prompt]


def test_a_failing_choice_ends_the_request(ws: Socket, house: House) -> None:
    house.back.script = silence
    ws.generate("a", n=2)
    uid = house.submitted().uid
    house.send(m.Event(uid, 0, "x", ids(1)))
    house.send(m.Event(uid + 1, 0, "", finish_reason="error", fault=m.Fault(408, "too late")))
    frames = ws.hear_to_the_end()
    assert [frame["type"] for frame in frames] == ["delta", "error"]
    assert (frames[-1]["status"], house.cancelled()) == (408, uid)


def test_requests_interleave_on_one_socket(ws: Socket, house: House) -> None:
    house.back.script = silence
    ws.generate("a")
    ws.generate("b")
    a, b = house.submitted().uid, house.submitted().uid
    house.send(m.Event(b, 0, "b0", ids(1)), m.Event(a, 0, "a0", ids(1)))
    house.send(m.Event(b, 1, "b1", ids(1), "stop"))
    house.send(m.Event(a, 1, "a1", ids(1), "length"))
    frames = [ws.hear() for _ in range(6)]
    texts = {"a": "", "b": ""}
    for frame in frames:
        texts[frame["id"]] += frame.get("text", "")
    assert texts == {"a": "a0a1", "b": "b0b1"}
    assert [f["id"] for f in frames if f["type"] == "done"] == ["b", "a"]


def test_a_cancelled_request_is_done_by_abort(ws: Socket, house: House) -> None:
    house.back.script = silence
    ws.generate("a")
    uid = house.submitted().uid
    ws.say(type="cancel", id="a")
    assert house.cancelled() == uid
    house.send(abort(uid))
    done = ws.hear()
    assert (done["type"], done["id"], done["finish_reason"]) == ("done", "a", "abort")


def test_cancelling_an_unknown_id_is_ignored(ws: Socket) -> None:
    ws.say(type="cancel", id="nobody")
    ws.generate("a")
    assert ws.hear_to_the_end()[-1]["id"] == "a"


def test_a_live_id_is_refused_to_a_newcomer(ws: Socket, house: House) -> None:
    house.back.script = silence
    ws.generate("a")
    ws.generate("a")
    error = ws.hear()
    assert (error["type"], error["id"], error["error"]["code"]) == ("error", "a", "duplicate_id")
    house.send(abort(house.submitted().uid))
    assert ws.hear()["type"] == "done"
    assert house.back.submits.empty()


def test_an_id_is_free_again_after_its_end(ws: Socket) -> None:
    for _ in range(2):
        ws.generate("a")
        assert ws.hear_to_the_end()[-1]["type"] == "done"


@pytest.mark.parametrize("stream", [True, False])
def test_a_rejection_is_an_error_frame(ws: Socket, house: House, stream: bool) -> None:
    fault = m.Fault(400, "too long", param="prompt", code="context_length_exceeded")
    house.back.script = lambda submit: [m.Rejected(submit.uid, fault)]
    ws.generate("a", stream=stream)
    assert ws.hear() == {
        "type": "error",
        "id": "a",
        "status": 400,
        "error": {
            "message": "too long",
            "type": "invalid_request_error",
            "param": "prompt",
            "code": "context_length_exceeded",
        },
    }


@pytest.mark.parametrize(
    ("frame", "id", "param"),
    [
        ("", None, None),
        ("{", None, None),
        ("[]", None, None),
        ("5", None, None),
        ("[" * 100_000, None, None),
        ('{"type": "sing", "id": "a"}', "a", "type"),
        ('{"id": "a"}', "a", "type"),
        ('{"type": "generate", "request": {}}', None, "id"),
        ('{"type": "generate", "id": 5, "request": {}}', None, "id"),
        ('{"type": "generate", "id": "", "request": {}}', "", "id"),
        ('{"type": "generate", "id": "a"}', "a", "request"),
        ('{"type": "generate", "id": "a", "request": 5}', "a", None),
        ('{"type": "generate", "id": "a", "request": {}}', "a", "prompt"),
        ('{"type": "generate", "id": "a", "request": {"prompt": "\\ud800"}}', None, None),
        ('{"type": "generate", "id": "a", "request": {"prompt": "Hi", "n": 0}}', "a", "n"),
        ('{"type": "generate", "id": "a", "request": {"prompt": "Hi", "temperature": NaN}}', None, None),
        ('{"type": "generate", "id": "a", "mood": 1, "request": {"prompt": "Hi"}}', "a", "mood"),
        ('{"type": "cancel"}', None, "id"),
    ],
)
def test_a_wrong_frame_is_refused_and_the_socket_stays(
    ws: Socket, house: House, frame: str, id: str | None, param: str | None
) -> None:
    ws.connection.send(frame)
    error = ws.hear()
    assert (error["type"], error["status"]) == ("error", 400)
    assert (error["id"], error["error"]["param"]) == (id, param)
    assert house.back.submits.empty()
    ws.generate("b")
    assert ws.hear_to_the_end()[-1]["type"] == "done"


def test_a_binary_frame_is_refused(ws: Socket) -> None:
    ws.connection.send(b"{}")
    assert ws.hear()["error"]["message"] == "Frames are text, not binary."


def test_an_unknown_model_is_not_found(ws: Socket) -> None:
    ws.generate("a", model="huge")
    assert (error := ws.hear())["status"] == 404
    assert error["error"]["code"] == "model_not_found"


def test_closing_the_socket_cancels_all_its_requests(ws: Socket, house: House) -> None:
    house.back.script = silence
    for name in "abc":
        ws.generate(name)
    uids = {house.submitted().uid for _ in range(3)}
    ws.connection.close()
    assert {house.cancelled() for _ in range(3)} == uids
    assert house.live == 0


def test_a_vanished_socket_cancels_too(ws: Socket, house: House) -> None:
    house.back.script = lambda submit: [m.Events([m.Event(submit.uid, 0, "a", ids(1))])]
    ws.generate("a")
    assert ws.hear()["text"] == "a"
    ws.connection.socket.shutdown(2)
    assert house.cancelled() == house.submitted().uid
    assert house.live == 0


def test_a_client_that_does_not_read_gets_every_delta_in_the_end(ws: Socket, house: House) -> None:
    count, piece = 1000, "#" * 10_000
    house.back.script = silence
    ws.generate("a")
    uid = house.submitted().uid
    for i in range(count):
        house.send(m.Event(uid, i, piece, ids(7)))
    house.send(m.Event(uid, count, "", finish_reason="stop"))
    *deltas, done = ws.hear_to_the_end()
    assert sum(len(delta["text"]) for delta in deltas) == count * len(piece)
    assert done["type"] == "done"


def test_open_sockets_are_counted(house: House) -> None:
    meter = Meter("gateway", memoryview(bytearray(8 * 128)).cast("d"))
    counts: list[float] = []
    events = iter(["websocket.connect", "websocket.disconnect"])

    async def receive() -> dict[str, Any]:
        counts.append(meter.value("connections_live"))
        return {"type": next(events)}

    async def send(message: Any) -> None:
        assert message == {"type": "websocket.accept"}

    asyncio.run(websocket.Socket(house.door, Intake("tiny"), meter, Sessions())({}, receive, send))
    assert [*counts, meter.value("connections_live")] == [0, 1, 0]


def test_a_socket_that_leads_nowhere_is_404(house: House) -> None:
    with pytest.raises(InvalidStatus) as caught:
        connect(house.ws_url + "s", open_timeout=PATIENCE)
    answer = caught.value.response
    assert (answer.status_code, "www-authenticate" in answer.headers) == (404, False)
    assert json.loads(answer.body or b"")["error"]["message"] == "There is nothing at /v1/streams."


def test_a_handshake_that_is_refused_is_no_error_of_the_server(
    build: Callable[..., House], caplog: pytest.LogCaptureFixture
) -> None:
    house = build(api_key="secret")
    with pytest.raises(InvalidStatus):
        connect(house.ws_url, open_timeout=PATIENCE)
    house.close()
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


def test_the_key_belongs_in_the_header(build: Callable[..., House]) -> None:
    house = build(api_key="secret")
    for url in (house.ws_url, house.ws_url + "?api_key=secret"):
        with pytest.raises(InvalidStatus) as caught:
            connect(url, open_timeout=PATIENCE)
        assert caught.value.response.status_code == 401
        assert json.loads(caught.value.response.body or b"")["error"]["code"] == "invalid_api_key"
    headers = {"Authorization": "Bearer secret"}
    with connect(house.ws_url, additional_headers=headers, open_timeout=PATIENCE) as connection:
        ws = Socket(connection)
        ws.generate("a")
        assert ws.hear_to_the_end()[-1]["type"] == "done"


def test_a_frame_over_the_limit_closes_the_socket(build: Callable[..., House]) -> None:
    house = build(max_body_bytes=2000)
    with connect(house.ws_url, open_timeout=PATIENCE) as connection:
        connection.send("x" * 3000)
        connection.close_timeout = 0
        with pytest.raises(Exception, match="1009"):
            connection.recv(PATIENCE)


def test_frames_that_came_in_one_piece_leave_the_others_their_turn() -> None:
    """`receive` never has to wait, and nor does `send`."""
    messages: list[http.Message] = [
        {"type": "websocket.receive", "text": '{"type": "cancel", "id": "x"}'}
    ] * 100
    messages.append({"type": "websocket.disconnect", "code": 1000})
    turns = 0

    async def receive() -> http.Message:
        return messages.pop(0)

    async def send(message: http.Message) -> None:
        raise AssertionError("nothing is to be said")

    async def others() -> None:
        nonlocal turns
        while messages:
            turns += 1
            await asyncio.sleep(0)

    async def main() -> None:
        session = websocket.Session(cast(Door, None), cast(Intake, None), send)
        await asyncio.gather(session.run(receive), others())

    asyncio.run(main())
    assert turns >= 100
