"""The bytes of answers, exactly."""

from __future__ import annotations

import json
from array import array
from typing import Any

import pytest

from stretto.roles.gateway.answers import id_list
from stretto.roles.gateway.apis import ChatAnswer, TextAnswer, answer_to
from stretto.roles.gateway.job import Job
from stretto.roles.messages import Event, Fault, SamplingParams, Usage

USAGE = {
    "prompt_tokens": 5,
    "completion_tokens": 2,
    "total_tokens": 7,
    "prompt_tokens_details": {"cached_tokens": 3},
}
END = Event(
    1, 1, " b", array("i", [8]).tobytes(), "stop", "x", Usage(5, 2, 3), None, array("i", [4, 5]).tobytes()
)


def job(**form: bool) -> Job:
    return Job(params=SamplingParams(), prompts=("Hi",), **form)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1700000000.9)


def chunks(data: bytes) -> list[Any]:
    """The JSON of each event, [DONE] as it is."""
    assert data.endswith(b"\n\n")
    lines = data.decode()[:-2].split("\n\n")
    assert all(line.startswith("data: ") for line in lines)
    return [line[6:] if line == "data: [DONE]" else json.loads(line[6:]) for line in lines]


def test_a_chat_chunk_is_these_bytes() -> None:
    answer = ChatAnswer(job(), 255, "tiny")
    assert answer.event(Event(255, 0, 'a "ö"\n')) == (
        b'data: {"id":"chatcmpl-00000000000000ff","object":"chat.completion.chunk","created":1700000000,'
        b'"model":"tiny","choices":[{"index":0,"delta":{"content":"a \\"\xc3\xb6\\"\\n"},'
        b'"logprobs":null,"finish_reason":null}]}\n\n'
    )


def test_a_chat_stream_has_a_role_chunk_and_a_terminal_chunk() -> None:
    answer = ChatAnswer(job(), 1, "tiny")
    role, text, last, done = chunks(answer.opening([]) + answer.event(END))
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert text["choices"] == [
        {"index": 0, "delta": {"content": " b"}, "logprobs": None, "finish_reason": None}
    ]
    assert last["choices"] == [
        {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop", "stop_reason": "x"}
    ]
    assert done == "[DONE]"
    assert "usage" not in last


def test_usage_comes_in_a_chunk_without_choices_and_is_null_before() -> None:
    answer = ChatAnswer(job(include_usage=True), 1, "tiny")
    *before, usage, _ = chunks(answer.opening([]) + answer.event(END))
    assert [chunk["usage"] for chunk in before] == [None, None, None]
    assert (usage["choices"], usage["usage"]) == ([], USAGE)
    assert {chunk["id"] for chunk in [*before, usage]} == {"chatcmpl-0000000000000001"}


def test_a_text_stream_has_no_role() -> None:
    answer = TextAnswer(job(), 1, "tiny")
    text, last, _ = chunks(answer.opening([]) + answer.event(END))
    assert text == {
        "id": "cmpl-0000000000000001",
        "object": "text_completion",
        "created": 1700000000,
        "model": "tiny",
        "choices": [{"index": 0, "text": " b", "logprobs": None, "finish_reason": None}],
    }
    assert last["choices"] == [
        {"index": 0, "text": "", "logprobs": None, "finish_reason": "stop", "stop_reason": "x"}
    ]


def test_token_ids_come_with_their_text_and_prompt_ids_at_the_end() -> None:
    chat, text = (kind(job(return_token_ids=True), 1, "tiny") for kind in (ChatAnswer, TextAnswer))
    delta, last, _ = chunks(chat.event(END))
    assert (delta["choices"][0]["token_ids"], last["prompt_token_ids"]) == ([8], [4, 5])
    delta, last, _ = chunks(text.event(END))
    assert (delta["choices"][0]["token_ids"], last["choices"][0]["prompt_token_ids"]) == ([8], [4, 5])


def test_an_event_without_text_is_a_chunk_only_where_ids_are_asked_for() -> None:
    event = Event(1, 0, "", array("i", [9]).tobytes())
    assert ChatAnswer(job(), 1, "tiny").event(event) == b""
    (chunk,) = chunks(ChatAnswer(job(return_token_ids=True), 1, "tiny").event(event))
    assert chunk["choices"][0] | {"logprobs": None} == {
        "index": 0,
        "delta": {"content": ""},
        "logprobs": None,
        "finish_reason": None,
        "token_ids": [9],
    }


def test_an_error_ends_a_stream_without_done() -> None:
    event = Event(1, 3, "", finish_reason="error", fault=Fault(503, "gone", "server_error"))
    assert chunks(ChatAnswer(job(), 1, "tiny").event(event)) == [
        {"error": {"message": "gone", "type": "server_error", "param": None, "code": None}}
    ]


def test_a_whole_chat() -> None:
    assert json.loads(ChatAnswer(job(), 1, "tiny").whole({0: END})) == {
        "id": "chatcmpl-0000000000000001",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "tiny",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": " b", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
                "stop_reason": "x",
            }
        ],
        "usage": USAGE,
    }


def test_a_whole_text_with_ids() -> None:
    whole = json.loads(TextAnswer(job(return_token_ids=True), 1, "tiny").whole({0: END}))
    assert whole["object"] == "text_completion"
    assert whole["choices"] == [
        {
            "index": 0,
            "text": " b",
            "logprobs": None,
            "finish_reason": "stop",
            "stop_reason": "x",
            "token_ids": [8],
            "prompt_token_ids": [4, 5],
        }
    ]


def test_messages_make_a_chat() -> None:
    assert isinstance(answer_to(job(), 1, "tiny"), TextAnswer)
    assert isinstance(answer_to(Job(params=SamplingParams(), messages=[]), 1, "tiny"), ChatAnswer)


def test_ids_are_signed_32_bit_integers() -> None:
    assert id_list(b"\xff\xff\xff\x7f\x00\x00\x00\x00") == [2**31 - 1, 0]
