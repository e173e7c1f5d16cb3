"""Bad input that only the whole graph can judge: a clear 4xx, and the next good request works."""

import httpx
import pytest

MODEL = "SmolLM2-135M-Instruct"


def refused(server, status=400, **body):
    answer = httpx.post(server.url + "/v1/completions", json={"model": MODEL, **body}, timeout=None)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


@pytest.fixture(autouse=True)
def _next_request_works(server):
    prompts = server.metrics()["stretto_prompt_tokens_total"]
    yield
    assert server.complete("Once upon a time", max_tokens=2)["usage"]["completion_tokens"] == 2
    assert server.metrics()["stretto_prompt_tokens_total"] - prompts == 4  # only the good one was admitted


@pytest.mark.parametrize("stream", [True, False])
def test_a_prompt_longer_than_the_context(server, stream):
    error = refused(server, prompt=[5] * 9000, max_tokens=1, stream=stream)
    assert "9000" in error["message"]
    assert "8192" in error["message"]


def test_a_prompt_and_an_answer_longer_than_the_context(server):
    error = refused(server, prompt=[5] * 100, max_tokens=8193)
    assert "8192" in error["message"]


@pytest.mark.parametrize("prompt", [[49152], [-1], [2**40]])
def test_token_ids_outside_the_vocabulary(server, prompt):
    assert refused(server, prompt=prompt)["param"] == "prompt"


def test_an_empty_prompt(server):
    refused(server, prompt=[])


def test_a_lone_surrogate(server):
    body = b'{"model": "' + MODEL.encode() + b'", "prompt": "a\\ud800b"}'
    answer = httpx.post(
        server.url + "/v1/completions", content=body, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 400


def test_a_conversation_longer_than_the_context(server):
    body = {"model": MODEL, "messages": [{"role": "user", "content": "x" * 200_000}]}
    answer = httpx.post(server.url + "/v1/chat/completions", json=body, timeout=None)
    assert answer.status_code == 400
    assert "8192" in answer.json()["error"]["message"]
