"""Anthropic's client and its errors, over HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anthropic
import pytest

from stretto.roles import messages as m
from stretto.tests.roles.gateway.house import MODEL, PATIENCE, House, ids, unseeded

TURN: Any = {"role": "user", "content": "Hi"}


@pytest.fixture
def client(house: House) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=house.url, api_key="any", max_retries=0, timeout=PATIENCE)


@pytest.fixture(autouse=True)
def _nothing_is_left(house: House) -> Any:
    yield
    assert house.live == 0


def post(house: House, **fields: Any) -> Any:
    body = {"model": MODEL, "max_tokens": 9, "messages": [TURN], **fields}
    return house.http.post("/v1/messages", json=body)


def test_the_client_gets_a_message(client: anthropic.Anthropic, house: House) -> None:
    message = client.messages.create(
        model=MODEL,
        max_tokens=9,
        messages=[TURN],
        system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        stop_sequences=["end"],
        metadata={"user_id": "me"},
        extra_body={"temperature": 0.5, "top_p": 0.9, "top_k": 40},
    )
    assert (message.type, message.role, message.model) == ("message", "assistant", MODEL)
    assert message.id.startswith("msg_")
    assert message.content[0].type == "text"
    assert message.content[0].text == "Hello, wörld"
    assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (2, 3, 2)
    submit = house.submitted()
    assert submit.messages == [{"role": "system", "content": "Be brief."}, TURN]
    assert unseeded(submit.params) == m.SamplingParams(
        max_tokens=9, temperature=0.5, top_p=0.9, top_k=40, stop=("end",)
    )


def test_the_client_streams_a_message(client: anthropic.Anthropic) -> None:
    with client.messages.stream(model=MODEL, max_tokens=9, messages=[TURN]) as stream:
        assert list(stream.text_stream) == ["Hello", ", wörld"]
        message = stream.get_final_message()
    assert message.content[0].type == "text"
    assert (message.content[0].text, message.stop_reason) == ("Hello, wörld", "end_turn")
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (2, 3, 2)


def test_the_stream_is_anthropics_to_the_letter(house: House) -> None:
    answer = post(house, stream=True)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    events = [block.split("\n") for block in answer.text.rstrip().split("\n\n")]
    names = [name.removeprefix("event: ") for name, _ in events]
    bodies = [json.loads(data.removeprefix("data: ")) for _, data in events]
    assert [body["type"] for body in bodies] == names
    assert names == [
        "message_start",
        "content_block_start",
        "ping",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert bodies[0]["message"]["content"] == []
    assert bodies[0]["message"]["stop_reason"] is None
    assert bodies[1] == {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "text", "text": ""},
    }
    assert bodies[3]["delta"] == {"type": "text_delta", "text": "Hello"}
    assert bodies[6] == {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {
            "input_tokens": 2,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 3,
            "output_tokens": 2,
        },
    }


def test_an_answer_that_is_begun_is_continued(client: anthropic.Anthropic, house: House) -> None:
    begun: Any = {"role": "assistant", "content": [{"type": "text", "text": "The best is ("}]}
    client.messages.create(model=MODEL, max_tokens=9, messages=[TURN, begun])
    submit = house.submitted()
    assert (submit.continue_final_message, submit.add_generation_prompt) == (True, False)
    assert submit.messages == [TURN, {"role": "assistant", "content": "The best is ("}]


def test_the_client_counts_tokens(client: anthropic.Anthropic, house: House) -> None:
    count = client.messages.count_tokens(model=MODEL, system="Yes.", messages=[TURN])
    assert count.input_tokens == 6
    question = house.back.questions.get_nowait()
    assert isinstance(question, m.Tokenize)
    assert (question.add_generation_prompt, question.continue_final_message) == (True, False)


def test_the_client_raises_its_own_errors(client: anthropic.Anthropic, house: House) -> None:
    with pytest.raises(anthropic.NotFoundError) as not_found:
        client.messages.create(model="huge", max_tokens=9, messages=[TURN])
    assert not_found.value.body == {
        "type": "error",
        "error": {
            "type": "not_found_error",
            "message": f"The model 'huge' does not exist; this server serves {MODEL!r}.",
        },
        "request_id": None,
    }
    with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
        client.messages.create(model=MODEL, max_tokens=-1, messages=[TURN])
    house.back.full = True
    with pytest.raises(anthropic.RateLimitError):
        client.messages.create(model=MODEL, max_tokens=9, messages=[TURN])


@pytest.mark.parametrize("stream", [True, False])
def test_a_rejection_gets_its_own_status(house: House, stream: bool) -> None:
    fault = m.Fault(400, "too long")
    house.back.script = lambda submit: [m.Rejected(submit.uid, fault)]
    answer = post(house, stream=stream)
    assert answer.status_code == 400
    assert answer.json()["error"] == {"type": "invalid_request_error", "message": "too long"}


def test_an_error_in_mid_stream_is_raised_by_the_client(client: anthropic.Anthropic, house: House) -> None:
    fault = m.Fault(503, "gone", "server_error")
    house.back.script = lambda s: [
        m.Events([m.Event(s.uid, 0, "a", ids(1))]),
        m.Events([m.Event(s.uid, 1, "", finish_reason="error", fault=fault)]),
    ]
    assert post(house, stream=True).text.endswith(
        'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"gone"},'
        '"request_id":null}\n\n'
    )
    with (
        client.messages.stream(model=MODEL, max_tokens=9, messages=[TURN]) as stream,
        pytest.raises(anthropic.APIStatusError, match="gone"),
    ):
        list(stream)


def test_its_key_may_come_by_its_own_header(build: Callable[..., House]) -> None:
    house = build(api_key="secret")
    good = anthropic.Anthropic(base_url=house.url, api_key="secret", max_retries=0, timeout=PATIENCE)
    assert good.messages.create(model=MODEL, max_tokens=9, messages=[TURN]).stop_reason == "end_turn"
    bad = anthropic.Anthropic(base_url=house.url, api_key="wrong", max_retries=0, timeout=PATIENCE)
    with pytest.raises(anthropic.AuthenticationError) as refused:
        bad.messages.create(model=MODEL, max_tokens=9, messages=[TURN])
    assert refused.value.body["error"]["type"] == "authentication_error"  # type: ignore[index]
    headers = {"authorization": "", "x-api-key": "secret"}
    assert house.http.get("/v1/models", headers=headers).status_code == 401


def test_all_its_errors_have_its_form(house: House) -> None:
    def stumble(submit: m.Submit) -> list[m.ToGateway]:
        raise RuntimeError("planted")

    assert house.http.get("/v1/messages").json()["error"]["type"] == "invalid_request_error"
    assert house.http.get("/v1/messages/x").json()["error"]["type"] == "not_found_error"
    house.back.script = stumble
    assert post(house).json()["error"]["type"] == "api_error"
