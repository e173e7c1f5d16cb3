"""Roles that stand still, one after the other, under streams: each answer is that of a quiet run."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from e2e.serving import Server

from stretto.roles.client import Client

BODIES: list[dict[str, Any]] = [
    {"prompt": "Once upon a time", "max_tokens": 60, "temperature": 0},
    {"prompt": "The sea is", "max_tokens": 40, "seed": 5, "n": 2},
    {"prompt": "A list of animals:", "max_tokens": 40, "seed": 6, "logprobs": 1},
]
VICTIMS = [(10, "detokenizer"), (40, "scheduler"), (70, "executor"), (100, "gateway"), (130, "tokenizer")]
"""With the number of tokens that have come."""


@pytest.fixture(scope="module")
def impatient(start: Any) -> Server:
    server: Server = start("--gateways", "2", "--heartbeat-timeout", "2")
    return server


class Crowd:
    """Clients, and what is frozen under them."""

    def __init__(self, server: Server, victims: list[tuple[int, str]]) -> None:
        self._server, self._victims, self._tokens = server, list(victims), 0
        self._lock = threading.Lock()

    def ask(self) -> list[Any]:
        with Client(self._server.url) as client, ThreadPoolExecutor(len(BODIES)) as pool:
            return [answer.result() for answer in [pool.submit(self._answer, client, b) for b in BODIES]]

    def _answer(self, client: Client, body: dict[str, Any]) -> Any:
        fields = {**body, "ignore_eos": True, "return_token_ids": True}
        stream, texts = client.stream(fields.pop("prompt"), **fields), dict[int, str]()
        for delta in stream:
            texts[delta.choice] = texts.get(delta.choice, "") + delta.text
            if role := self._due(len(delta.token_ids)):
                self._freeze(role)
                client.generate("A newcomer", max_tokens=1)
        answer = stream.completion
        assert answer is not None
        return texts, [(one.text, one.token_ids, one.logprobs) for one in [answer, *answer.others]]

    def _due(self, tokens: int) -> str | None:
        with self._lock:
            self._tokens += tokens
            due = self._victims and self._tokens >= self._victims[0][0]
            return self._victims.pop(0)[1] if due else None

    def _freeze(self, role: str) -> None:
        for title, process in self._server.family().items():
            if title.split(" ")[0] == role:
                process.send_signal(signal.SIGSTOP)


def test_what_stands_still_is_replaced_and_nobody_notices(impatient: Server) -> None:
    quiet = Crowd(impatient, []).ask()
    assert Crowd(impatient, VICTIMS).ask() == quiet
    roles = httpx.get(impatient.url + "/health").json()["roles"]
    replaced = {name.split(".")[0] for name, facts in roles.items() if facts["restarts"]}
    assert replaced == {role for _, role in VICTIMS}
