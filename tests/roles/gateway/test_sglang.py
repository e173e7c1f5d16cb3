"""SGLang's native endpoints over HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from stretto.roles import messages as m
from stretto.tests.roles.gateway.house import House, ids, silence


@pytest.fixture(autouse=True)
def _nothing_is_left(house: House) -> Any:
    yield
    assert house.live == 0


def generate(house: House, **body: Any) -> Any:
    answer = house.http.post("/generate", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def stream(house: House, **body: Any) -> list[Any]:
    """The chunks of a stream that ends well."""
    answer = house.http.post("/generate", json={**body, "stream": True})
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    *chunks, done = answer.text.rstrip().split("\n\n")
    assert done == "data: [DONE]"
    return [json.loads(chunk.removeprefix("data: ")) for chunk in chunks]


def test_one_prompt_gets_one_object(house: House) -> None:
    answer = generate(house, text="Hi", sampling_params={"temperature": 0, "max_new_tokens": 5}, rid="mine")
    latency = answer["meta_info"].pop("e2e_latency")
    assert latency > 0
    assert answer == {
        "text": "Hello, wörld",
        "output_ids": [7, 8],
        "meta_info": {
            "id": "mine",
            "finish_reason": {"type": "stop", "matched": 8},
            "prompt_tokens": 5,
            "completion_tokens": 2,
            "cached_tokens": 3,
        },
    }
    submit = house.submitted()
    assert submit.params == m.SamplingParams(max_tokens=5, temperature=0.0)
    assert (submit.prompt, submit.stream) == ("Hi", False)


def test_a_stream_says_all_so_far_in_each_chunk(house: House) -> None:
    first, second, last = stream(house, text="Hi")
    assert [chunk["text"] for chunk in (first, second, last)] == ["Hello", "Hello, wörld", "Hello, wörld"]
    assert (first["output_ids"], last["output_ids"]) == ([7], [7, 8])
    assert first["meta_info"]["finish_reason"] is None
    assert "e2e_latency" not in first["meta_info"]
    assert last["meta_info"]["finish_reason"] == {"type": "stop", "matched": 8}
    assert (last["meta_info"]["prompt_tokens"], last["meta_info"]["cached_tokens"]) == (5, 3)
    assert "index" not in last


@pytest.mark.parametrize("prompts", [{"text": ["a", "b"]}, {"input_ids": [[1], [2, 3]]}])
def test_many_prompts_get_a_list_in_order(house: House, prompts: dict[str, Any]) -> None:
    parameters = [{"max_new_tokens": 1}, {"max_new_tokens": 2}]
    answers = generate(house, **prompts, sampling_params=parameters, rid="mine")
    assert [answer["meta_info"]["id"] for answer in answers] == ["mine_0", "mine_1"]
    submits = [house.submitted(), house.submitted()]
    assert [submit.prompt for submit in submits] == next(iter(prompts.values()))
    assert [submit.params.max_tokens for submit in submits] == [1, 2]


def test_a_list_of_one_is_a_list(house: House) -> None:
    assert len(generate(house, text=["a"])) == 1


def test_many_streamed_prompts_are_told_apart_by_index(house: House) -> None:
    chunks = stream(house, text=["a", "b"])
    for index in (0, 1):
        texts = [chunk["text"] for chunk in chunks if chunk["index"] == index]
        assert texts == ["Hello", "Hello, wörld", "Hello, wörld"]


def test_many_choices_get_a_list(house: House) -> None:
    def both(submit: m.Submit) -> list[m.ToGateway]:
        ends = [m.Event(submit.uid + i, 0, "ab"[i], ids(i), "length", usage=m.Usage(5, 1)) for i in (1, 0)]
        return [m.Events([end]) for end in ends]

    house.back.script = both
    answers = generate(house, text="Hi", sampling_params={"n": 2})
    assert [answer["text"] for answer in answers] == ["a", "b"]
    assert answers[0]["meta_info"]["finish_reason"] == {"type": "length", "length": 1}
    assert answers[0]["meta_info"]["id"].startswith("gen-")


@pytest.mark.parametrize("streamed", [True, False])
def test_one_refused_prompt_refuses_all(house: House, streamed: bool) -> None:
    fault = m.Fault(400, "too long", param="prompt")

    def refuse_b(submit: m.Submit) -> list[m.ToGateway]:
        return [m.Rejected(submit.uid, fault)] if submit.prompt == "b" else []

    house.back.script = refuse_b
    answer = house.http.post("/generate", json={"text": ["a", "b"], "stream": streamed})
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, "too long")
    assert house.cancelled() == house.submitted().uid


def test_an_error_in_mid_stream_is_an_event_and_no_done(house: House) -> None:
    fault = m.Fault(503, "gone", "server_error")
    house.back.script = lambda s: [
        m.Events([m.Event(s.uid, 0, "a", ids(1))]),
        m.Events([m.Event(s.uid, 1, "", finish_reason="error", fault=fault)]),
    ]
    text = house.http.post("/generate", json={"text": "Hi", "stream": True}).text
    assert '"text":"a"' in text
    assert text.endswith(
        'data: {"error":{"message":"gone","type":"server_error","param":null,"code":null}}\n\n'
    )


def test_a_full_back_end_means_429(house: House) -> None:
    house.back.full = True
    assert house.http.post("/generate", json={"text": ["a", "b"]}).status_code == 429


def test_an_aborted_request_says_so(house: House) -> None:
    house.back.script = lambda s: [m.Events([m.Event(s.uid, 0, "", finish_reason="abort")])]
    reason = generate(house, text="Hi")["meta_info"]["finish_reason"]
    assert reason == {"type": "abort", "message": "The request was aborted."}


def test_the_probe_generates_a_token(house: House) -> None:
    answer = house.http.get("/health_generate")
    assert (answer.status_code, answer.content) == (200, b"")
    submit = house.submitted()
    assert submit.params == m.SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True)


def test_the_probe_tells_of_a_failure(house: House) -> None:
    house.back.script = lambda submit: [m.Rejected(submit.uid, m.Fault(400, "broken"))]
    answer = house.http.get("/health_generate")
    assert (answer.status_code, answer.json()["error"]["message"]) == (503, "broken")
    house.back.full = True
    assert house.http.get("/health_generate").status_code == 503


def test_the_probe_gives_up(build: Callable[..., House]) -> None:
    house = build(heartbeat_timeout=0.01)
    house.back.script = silence
    assert house.http.get("/health_generate").status_code == 503
    assert house.cancelled() == house.submitted().uid


def test_probes_share_one_token(house: House) -> None:
    house.back.script = silence
    with ThreadPoolExecutor() as pool:
        first = pool.submit(house.http.get, "/health_generate")
        uid = house.submitted().uid
        second = pool.submit(house.http.get, "/health_generate")
        _until_waiting(house, 2)
        house.send(m.Event(uid, 0, "a", ids(1), "length", usage=m.Usage(1, 1)))
        assert [first.result().status_code, second.result().status_code] == [200, 200]
    assert house.back.submits.empty()


def _until_waiting(house: House, requests: int) -> None:
    """Wait until the gateway is answering so many requests."""
    ready = threading.Event()

    def look() -> None:
        if len(house.server._state.tasks) >= requests:
            ready.set()
        else:
            house.loop.call_soon(look)

    house.call(look)
    ready.wait()
