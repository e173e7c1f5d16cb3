"""The generating endpoints over HTTP: good answers, refusals, and clients that leave."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest

from stretto.roles import messages as m
from stretto.tests.roles.gateway.house import MODEL, PATIENCE, House, ids, silence

TURN: Any = {"role": "user", "content": "Hi"}


@pytest.fixture
def client(house: House) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{house.url}/v1", api_key="any", max_retries=0, timeout=PATIENCE)


@pytest.fixture(autouse=True)
def _nothing_is_left(house: House) -> Any:
    yield
    assert house.live == 0


def post_raw(house: House, body: dict[str, Any]) -> socket.socket:
    """A chat request on a bare socket, nothing read yet."""
    data = json.dumps(body).encode()
    sock = socket.create_connection(house.listener.getsockname(), PATIENCE)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
    sock.sendall(head.encode() + data)
    return sock


def test_openais_client_gets_a_chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=[TURN], max_tokens=5)
    assert answer.id.startswith("chatcmpl-")
    assert (answer.object, answer.model) == ("chat.completion", MODEL)
    assert answer.choices[0].message.content == "Hello, wörld"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 7
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 3


def test_openais_client_streams_a_chat(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL,
        messages=[TURN],
        stream=True,
        stream_options={"include_usage": True},
    )
    *chunks, usage = list(stream)
    assert [c.choices[0].delta.content for c in chunks] == ["", "Hello", ", wörld", None]
    assert [c.choices[0].finish_reason for c in chunks] == [None, None, None, "stop"]
    assert (usage.choices, usage.usage and usage.usage.total_tokens) == ([], 7)


def test_openais_client_gets_and_streams_a_completion(client: openai.OpenAI, house: House) -> None:
    whole = client.completions.create(model=MODEL, prompt="Hi")
    assert (whole.choices[0].text, whole.object) == ("Hello, wörld", "text_completion")
    stream = client.completions.create(model=MODEL, prompt=[1, 2], stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == "Hello, wörld"
    assert [house.submitted().prompt, house.submitted().prompt] == ["Hi", [1, 2]]


def test_openais_client_raises_its_own_errors(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as not_found:
        client.completions.create(model="huge", prompt="Hi")
    assert not_found.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as bad:
        client.completions.create(model=MODEL, prompt="Hi", max_tokens=-1)
    assert bad.value.param == "max_tokens"


def test_the_job_reaches_the_back_end(house: House) -> None:
    house.chat(temperature=0, max_tokens=3, return_token_ids=True)
    submit = house.submitted()
    assert submit.params == m.SamplingParams(max_tokens=3, temperature=0.0)
    assert submit.messages == [TURN]
    assert (submit.stream, submit.echo_prompt_ids) == (False, True)


def test_a_stream_is_server_sent_events(house: House) -> None:
    answer = house.chat(stream=True)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.text.endswith("data: [DONE]\n\n")


def test_events_are_sent_as_they_come(house: House) -> None:
    house.back.script = lambda submit: [m.Events([m.Event(submit.uid, 0, "Hello", ids(7))])]
    with house.http.stream("POST", "/v1/completions", json={"prompt": "Hi", "stream": True}) as answer:
        lines = answer.iter_lines()
        assert '"text":"Hello"' in next(lines)
        house.send(m.Event(house.submitted().uid, 1, "!", ids(8), "stop", usage=m.Usage(1, 2)))
        assert '"text":"!"' in "".join(lines)


BAD_BODIES = [
    b"",
    b"{",
    b"[]",
    b'{"messages": []}',
    b'{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1.5}',
    b'{"messages": [{"role": "user", "content": "Hi"}], "temperature": NaN}',
    b'{"messages": [{"role": "user", "content": "Hi"}], "temperature": 1e999}',
    b'{"messages": [{"role": "user", "content": "Hi"}], "color": "red"}',
    b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
    b'{"messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
]


@pytest.mark.parametrize("body", BAD_BODIES)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_a_bad_body_gets_400_and_the_next_request_works(house: House, path: str, body: bytes) -> None:
    answer = house.http.post(path, content=body)
    assert answer.status_code == 400
    assert answer.json()["error"].keys() == {"message", "type", "param", "code"}
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert house.back.submits.empty()
    assert house.chat().status_code == 200


@pytest.mark.parametrize("stream", [True, False])
def test_a_rejection_gets_its_own_status(house: House, stream: bool) -> None:
    fault = m.Fault(400, "too long", param="messages", code="context_length_exceeded")
    house.back.script = lambda submit: [m.Rejected(submit.uid, fault)]
    answer = house.chat(stream=stream)
    assert answer.status_code == 400
    assert answer.json() == {
        "error": {
            "message": "too long",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        }
    }


@pytest.mark.parametrize("stream", [True, False])
def test_a_schedulers_refusal_before_any_text_gets_its_own_status(house: House, stream: bool) -> None:
    fault = m.Fault(413, "needs 90 pages, the pool has 64")
    house.back.script = lambda s: [m.Events([m.Event(s.uid, 0, "", finish_reason="error", fault=fault)])]
    answer = house.chat(stream=stream)
    assert (answer.status_code, answer.json()["error"]["message"]) == (413, fault.message)


def test_an_error_in_a_started_stream_is_an_event_and_no_done(house: House) -> None:
    house.back.script = lambda submit: [m.Events([m.Event(submit.uid, 0, "a", ids(1))])]
    with house.http.stream("POST", "/v1/completions", json={"prompt": "Hi", "stream": True}) as answer:
        lines = answer.iter_lines()
        assert '"text":"a"' in next(lines)
        fault = m.Fault(503, "gone", "server_error")
        house.send(m.Event(house.submitted().uid, 1, "", finish_reason="error", fault=fault))
        error = '{"error":{"message":"gone","type":"server_error","param":null,"code":null}}'
        assert [line for line in lines if line] == [f"data: {error}"]
        assert answer.status_code == 200


def test_a_full_back_end_means_429_with_retry_after(house: House) -> None:
    house.back.full = True
    answer = house.chat()
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_before_the_first_event_cancels(house: House, stream: bool) -> None:
    house.back.script = silence
    sock = post_raw(house, {"messages": [TURN], "stream": stream})
    submit = house.submitted()
    sock.close()
    assert house.cancelled() == submit.uid


def test_a_client_that_leaves_in_mid_stream_cancels(house: House) -> None:
    house.back.script = lambda submit: [m.Events([m.Event(submit.uid, 0, "Hello", ids(7))])]
    sock = post_raw(house, {"messages": [TURN], "stream": True})
    assert b"200 OK" in sock.recv(1 << 16)
    sock.close()
    assert house.cancelled() == house.submitted().uid


def test_a_client_that_stays_to_the_end_cancels_nothing(house: House) -> None:
    house.chat(stream=True)
    house.chat()
    assert house.live == 0
    assert house.back.cancels.empty()


def test_a_slow_reader_gets_every_byte(house: House) -> None:
    """More than any socket buffer holds, in more events than a stream keeps apart."""
    count, piece = 1000, "#" * 10_000
    house.back.script = silence
    sock = post_raw(house, {"messages": [TURN], "stream": True})
    uid = house.submitted().uid
    for i in range(count):
        house.send(m.Event(uid, i, piece, ids(7)))
    house.send(m.Event(uid, count, "", finish_reason="length", usage=m.Usage(1, count)))
    data = b""
    while not data.endswith(b"0\r\n\r\n"):
        data += sock.recv(1 << 20)
    sock.close()
    assert data.count(b"#") == count * len(piece)
    assert b"[DONE]" in data


def test_many_requests_on_one_connection(house: House) -> None:
    with httpx.Client(base_url=house.url, timeout=PATIENCE) as http:
        for stream in (True, False, True):
            body = {"messages": [TURN], "stream": stream}
            assert http.post("/v1/chat/completions", json=body).status_code == 200


def test_a_request_that_kills_twice_gets_500(house: House) -> None:
    def kill(submit: m.Submit) -> list[m.ToGateway]:
        house.loop.call_soon(house.door.peer_lost, "scheduler", 0, submit.uid)
        return []

    house.back.script = kill
    answer = house.chat()
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "poison_request")


def test_a_body_over_the_limit_gets_413(build: Callable[..., House]) -> None:
    house = build(max_body_bytes=2000)
    answer = house.chat(user="x" * 2000)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")
    assert house.chat().status_code == 200


def test_an_endless_body_gets_413_before_its_end(build: Callable[..., House]) -> None:
    house = build(max_body_bytes=2000)
    with socket.create_connection(house.listener.getsockname(), PATIENCE) as sock:
        sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        sock.sendall(b"%x\r\n%s\r\n" % (4000, b" " * 4000))
        head, _, body = sock.recv(1 << 16).partition(b"\r\n\r\n")
        body = body or sock.recv(1 << 16)
    assert head.startswith(b"HTTP/1.1 413 ")
    assert json.loads(body)["error"]["code"] == "request_too_large"
    assert house.back.submits.empty()


def test_unknown_fields_are_ignored_where_the_server_is_told_so(build: Callable[..., House]) -> None:
    house = build(allow_unknown_fields=True)
    assert house.chat(color="red").status_code == 200
    assert house.chat(temperature="hot").json()["error"]["param"] == "temperature"
