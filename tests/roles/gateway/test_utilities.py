"""Tokens, aborts, and what the server says of itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from stretto import __version__
from stretto.roles import messages as m
from stretto.tests.roles.gateway.house import MODEL, House, ids, silence

TURN = {"role": "user", "content": "Hi"}


def post(house: House, path: str, **body: Any) -> Any:
    answer = house.http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def error_of(house: House, path: str, **body: Any) -> Any:
    answer = house.http.post(path, json=body)
    assert answer.status_code in (400, 404)
    return answer.json()["error"]


def test_a_text_is_tokenized(house: House) -> None:
    answer = post(house, "/tokenize", model=MODEL, prompt="Hi", add_special_tokens=False)
    assert answer == {"count": 2, "max_model_len": 2048, "tokens": [72, 105], "token_strs": None}
    question = house.back.questions.get_nowait()
    assert question == m.Tokenize(question.uid, 0, prompt="Hi", add_special_tokens=False)


def test_a_conversation_is_tokenized(house: House) -> None:
    parts = [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]
    turn = {"role": "developer", "content": parts}
    answer = post(house, "/tokenize", messages=[turn], chat_template_kwargs={"a": 1}, return_token_strs=True)
    assert (answer["count"], answer["token_strs"]) == (3, ["H", "\n", "i"])
    question = house.back.questions.get_nowait()
    messages = [{"role": "system", "content": "H\ni"}]
    assert question == m.Tokenize(question.uid, 0, messages=messages, template_kwargs={"a": 1})


def test_the_last_message_may_be_left_open(house: House) -> None:
    post(house, "/tokenize", messages=[TURN], continue_final_message=True)
    question = house.back.questions.get_nowait()
    assert isinstance(question, m.Tokenize)
    assert (question.continue_final_message, question.add_generation_prompt) == (True, False)


def test_ids_become_text_again(house: House) -> None:
    tokens = post(house, "/tokenize", prompt="wörld")["tokens"]
    assert post(house, "/detokenize", tokens=tokens) == {"prompt": "wörld"}


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "Hi", "messages": [TURN]}, "prompt"),
        ("/tokenize", {"prompt": 3}, "prompt"),
        ("/tokenize", {"prompt": "Hi", "model": "huge"}, "model"),
        ("/tokenize", {"prompt": "Hi", "colour": 1}, "colour"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/tokenize", {"messages": [TURN], "chat_template_kwargs": {"a": 2**64}}, "chat_template_kwargs"),
        (
            "/tokenize",
            {"messages": [TURN], "continue_final_message": True, "add_generation_prompt": True},
            "continue_final_message",
        ),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens[0]"),
        ("/detokenize", {"tokens": [2**31]}, "tokens[0]"),
        ("/detokenize", {"tokens": [1], "model": "huge"}, "model"),
        ("/abort", {}, "request_id"),
        ("/abort", {"rid": 3}, "rid"),
    ],
)
def test_a_wrong_field_is_refused_by_name(house: House, path: str, body: dict[str, Any], param: str) -> None:
    assert error_of(house, path, **body)["param"] == param


def test_a_tokenizers_refusal_is_the_answer(house: House) -> None:
    fault = m.Fault(400, "no such token", param="tokens")
    house.back.reply = lambda question: m.Rejected(question.uid, fault)
    assert error_of(house, "/detokenize", tokens=[9])["message"] == "no such token"


def test_a_full_tokenizer_refuses(house: House) -> None:
    house.back.full = True
    assert house.http.post("/tokenize", json={"prompt": "Hi"}).status_code == 429


@pytest.mark.parametrize("name", ["request_id", "rid"])
@pytest.mark.parametrize("path", ["/abort", "/abort_request"])
def test_abort_ends_the_requests_of_that_id(house: House, path: str, name: str) -> None:
    house.back.script = silence
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(house.chat, request_id="mine")
        uid = house.submitted().uid
        assert post(house, path, **{name: ["other", "mine"]}) == {"aborted": 1}
        assert house.cancelled() == uid
        house.send(m.Event(uid, 0, "He", ids(1), "abort", usage=m.Usage(1, 1)))
        choice = waiting.result().json()["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("He", "abort")


def test_abort_knows_the_id_that_the_server_made(house: House) -> None:
    house.back.script = lambda submit: [m.Events([m.Event(submit.uid, 0, "He", ids(1))])]
    body = {"prompt": "Hi", "stream": True}
    with house.http.stream("POST", "/v1/completions", json=body) as answer:
        lines = answer.iter_lines()
        id = json.loads(next(lines).removeprefix("data: "))["id"]
        assert post(house, "/abort", request_id=id) == {"aborted": 1}
        uid = house.submitted().uid
        assert house.cancelled() == uid
        house.send(m.Event(uid, 1, "", b"", "abort", usage=m.Usage(1, 1)))
        assert '"finish_reason":"abort"' in "".join(lines)


def test_abort_all_ends_all_and_an_unknown_id_nothing(house: House) -> None:
    assert post(house, "/abort", request_id="nobody") == {"aborted": 0}
    house.back.script = silence
    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(house.chat) for _ in range(2)]
        uids = [house.submitted().uid, house.submitted().uid]
        assert post(house, "/abort_request", rid="", abort_all=True) == {"aborted": 2}
        assert sorted([house.cancelled(), house.cancelled()]) == sorted(uids)
        house.send(*[m.Event(uid, 0, "", b"", "abort", usage=m.Usage(1, 0)) for uid in uids])
        assert [call.result().status_code for call in waiting] == [200, 200]


def test_server_info_tells_all_but_the_secret(build: Callable[..., House]) -> None:
    house = build(api_key="very secret")
    answer = house.http.get("/server_info")
    body = answer.json()
    assert (body["version"], body["model"], body["max_model_len"]) == (__version__, MODEL, 2048)
    assert body["config"]["max_seqs"] == 64
    assert body["roles"]["scheduler.0"]["restarts"] == 0
    assert body["versions"].keys() >= {"python", "torch"}
    assert "very secret" not in answer.text
    assert house.http.get("/get_server_info").json().keys() == body.keys()
    assert house.http.get("/server_info", headers={"authorization": ""}).status_code == 401
