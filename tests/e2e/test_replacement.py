"""Live replacement, drain and boot loops of a real server."""

import contextlib
import json
import signal
import threading
import time

import httpx
import pytest

from stretto.roles.client.admin import drain, restart

PROMPT = "Once upon a time"
MODEL = "SmolLM2-135M-Instruct"


@pytest.fixture(scope="module")
def patient(start):
    server = start("--grace", "60")
    yield server
    server.stop()


class Streaming(threading.Thread):
    """A greedy stream of so many tokens; `began` is set with the first."""

    def __init__(self, server, tokens):
        super().__init__()
        self.server, self.tokens = server, tokens
        self.began = threading.Event()
        self.ids, self.last = [], ""
        self.start()

    def run(self):
        with contextlib.suppress(httpx.HTTPError):  # what came before it is looked at
            self.read()

    def read(self):
        body = {"model": MODEL, "prompt": PROMPT, "temperature": 0, "max_tokens": self.tokens}
        body |= {"stream": True, "ignore_eos": True, "return_token_ids": True}
        with httpx.stream("POST", self.server.url + "/v1/completions", json=body, timeout=None) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    self.last = line[6:]
                    if self.last != "[DONE]":
                        self.ids += json.loads(self.last)["choices"][0].get("token_ids") or []
                    self.began.set()


@pytest.mark.parametrize("role", ["gateway", "tokenizer", "detokenizer", "scheduler", "executor"])
def test_a_role_is_replaced_and_no_stream_notices(patient, role):
    whole = patient.complete(PROMPT, max_tokens=100, ignore_eos=True)["choices"][0]["token_ids"]
    stream = Streaming(patient, 100)
    stream.began.wait()
    assert restart(role, patient.url).startswith(f"replaced {role}.")
    stream.join()
    assert stream.last == "[DONE]"
    assert stream.ids == whole
    assert patient.complete(PROMPT, max_tokens=100, ignore_eos=True)["choices"][0]["token_ids"] == whole


def test_a_drained_server_finishes_its_streams_takes_no_new_ones_and_ends(start):
    server = start("--grace", "60")
    family = server.family()
    stream = Streaming(server, 100)
    stream.began.wait()
    assert drain(server.url) == "the server takes nothing new, finishes 1 request and ends"
    with httpx.Client(base_url=server.url, timeout=None) as http:
        while (health := http.get("/health")).status_code == 200:
            time.sleep(0.01)
        assert health.json()["status"] == "draining"
        assert http.post("/v1/completions", json={"model": MODEL, "prompt": PROMPT}).status_code == 503
    family["executor"].kill()  # who dies meanwhile is replaced all the same
    stream.join()
    assert (stream.last, len(stream.ids)) == ("[DONE]", 100)
    assert server.process.wait() == 0
    assert not any(process.is_running() for process in family.values())


def test_a_second_signal_ends_a_draining_server_at_once(start):
    server = start("--grace", "600")
    stream = Streaming(server, 8000)
    stream.began.wait()
    server.process.send_signal(signal.SIGTERM)
    while httpx.get(server.url + "/health").status_code == 200:
        time.sleep(0.01)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait() == 0
    with pytest.raises(httpx.HTTPError):
        httpx.get(server.url + "/health")
    stream.join()
