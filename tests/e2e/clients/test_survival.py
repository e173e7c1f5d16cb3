"""Deaths behind the gateways, and lost connections before them: every answer is that of a quiet run."""

import json
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from e2e.clients.proxy import Proxy

from stretto.roles.client import Client

BODIES: list[dict[str, Any]] = [
    {"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0},
    {"prompt": "The sea is", "max_tokens": 24, "seed": 5, "n": 2},
    {"prompt": "A list of animals:", "max_tokens": 24, "seed": 6, "logprobs": 1},
    {"prompt": "In the beginning", "max_tokens": 24, "seed": 7, "prompt_logprobs": 0},
]


@pytest.fixture(scope="module")
def crowd(start):
    """A server with two of everything that there can be two of."""
    return start("--gateways", "2", "--tokenizers", "2", "--detokenizers", "2")


@pytest.fixture(scope="module")
def quiet(crowd):
    return ask_all(crowd.url, lambda count: None)


def streamed(url: str, body: dict[str, Any], token: Any) -> dict[str, Any]:
    """What a request says over server-sent events, put together; `token` is called at each event."""
    said: dict[int, dict[str, Any]] = {}
    request = {**body, "stream": True, "return_token_ids": True, "stream_options": {"include_usage": True}}
    answer: dict[str, Any] = {"choices": said}
    with httpx.stream("POST", url + "/v1/completions", json=request, timeout=120) as lines:
        for line in lines.iter_lines():
            if not line.startswith("data: {"):
                continue
            event = json.loads(line[6:])
            assert "error" not in event, event
            token()
            answer["usage"] = event.get("usage")
            for choice in event["choices"]:
                part = said.setdefault(choice["index"], {"text": "", "ids": [], "logprobs": [], "ends": []})
                part["text"] += choice.get("text") or ""
                part["ids"] += choice.get("token_ids") or []
                part["logprobs"] += (choice.get("logprobs") or {}).get("token_logprobs") or []
                part["ends"] += [choice["finish_reason"]] if choice["finish_reason"] else []
    answer["usage"].pop("prompt_tokens_details")
    return answer


def whole(url: str, body: dict[str, Any]) -> Any:
    answer = httpx.post(url + "/v1/completions", json=body, timeout=120).json()
    return [(choice["text"], choice["logprobs"]) for choice in answer["choices"]]


def over_socket(client: Client, body: dict[str, Any], token: Any) -> Any:
    fields = {**body, "return_token_ids": True}
    stream = client.stream(fields.pop("prompt"), **fields)
    texts: dict[int, str] = {}
    for delta in stream:
        token()
        texts[delta.choice] = texts.get(delta.choice, "") + delta.text
    answer = stream.completion
    assert answer is not None
    answers = [answer, *answer.others]
    assert [one.text for one in answers] == [texts[i] for i in range(len(answers))]
    return [(one.text, one.token_ids, one.logprobs) for one in answers], answer.usage.completion_tokens


def ask_all(url: str, disturb: Any) -> list[Any]:
    """All bodies at once, in every way; `disturb` is called with the number of each event that comes."""
    count, lock = 0, threading.Lock()

    def token() -> None:
        nonlocal count
        with lock:
            count += 1
            disturb(count)

    with Client(url) as client, ThreadPoolExecutor(3 * len(BODIES)) as pool:
        answers = [pool.submit(streamed, url, body, token) for body in BODIES]
        answers += [pool.submit(over_socket, client, body, token) for body in BODIES]
        answers += [pool.submit(whole, url, body) for body in BODIES]
        return [answer.result(120) for answer in answers]


@pytest.mark.parametrize("role", ["scheduler", "detokenizer", "tokenizer", "executor"])
def test_a_killed_role_changes_no_answer(crowd, quiet, role):
    def kill(count: int) -> None:
        if count == 30:
            for title, process in crowd.family().items():
                if title.split(" ")[0] == role:
                    process.send_signal(signal.SIGKILL)
                    return

    before = restarts(crowd.url, role)
    assert ask_all(crowd.url, kill) == quiet
    assert restarts(crowd.url, role) == before + 1


def restarts(url: str, role: str) -> int:
    """Of all processes of a role."""
    roles = httpx.get(url + "/health").json()["roles"]
    return sum(facts["restarts"] for name, facts in roles.items() if name.split(".")[0] == role)


def test_cut_connections_change_no_answer(crowd, quiet):
    proxy = Proxy(crowd.url)
    before = crowd.metrics()["stretto_streams_resumed_total"]
    try:
        with Client(proxy.url) as client, ThreadPoolExecutor(len(BODIES)) as pool:
            count, lock = 0, threading.Lock()

            def cut() -> None:
                nonlocal count
                with lock:
                    count += 1
                    if count in (8, 40):
                        proxy.cut()

            answers = [pool.submit(over_socket, client, body, cut) for body in BODIES]
            unstreamed = client.generate(**BODIES[0])
            assert [answer.result(120) for answer in answers] == quiet[len(BODIES) : 2 * len(BODIES)]
            assert unstreamed.text == quiet[0]["choices"][0]["text"]
    finally:
        proxy.close()
    assert crowd.metrics()["stretto_streams_resumed_total"] > before


def test_gateways_that_are_replaced_lose_nothing(crowd, quiet):
    pids = {facts["pid"] for facts in gateways(crowd.url).values()}

    def replace(count: int) -> None:
        if count == 30:
            assert httpx.post(crowd.url + "/restart/gateway", timeout=60).json() == {"status": "restarting"}

    assert ask_all(crowd.url, replace) == quiet
    assert {facts["pid"] for facts in gateways(crowd.url).values()} != pids


def gateways(url: str) -> dict[str, Any]:
    roles = httpx.get(url + "/health").json()["roles"]
    return {name: facts for name, facts in roles.items() if name.startswith("gateway")}
