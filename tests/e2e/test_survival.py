"""Roles killed under streams of every kind: each answer is that of a quiet run, to the last figure."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from e2e.serving import MODEL, Server

BODIES: list[dict[str, Any]] = [
    {"prompt": "Once upon a time", "temperature": 0, "stream": True},
    {"prompt": "Once upon a time", "seed": 1, "n": 2, "stream": True},
    {"prompt": "The capital of France is", "seed": 2, "logprobs": 2, "stream": True},
    {"prompt": "The capital of France is", "seed": 3, "logprobs": 1, "echo": True},
    {"prompt": "My name is", "seed": 4, "stop": ["qqq", "."], "stream": True},
    {"prompt": "My name is", "seed": 5, "n": 2},
    {"prompt": "In the beginning", "seed": 6, "frequency_penalty": 0.5, "stream": True},
    {"prompt": "In the beginning", "temperature": 0, "use_beam_search": True, "best_of": 2, "n": 2},
]


class Call(threading.Thread):
    """One request; `choices` are its answer, put together, once it is joined."""

    def __init__(self, url: str, body: dict[str, Any]) -> None:
        super().__init__()
        self._url, self._body = url, {"model": MODEL, "max_tokens": 24, "return_token_ids": True, **body}
        self.began = threading.Event()
        self.choices: dict[int, dict[str, Any]] = {}
        self.usage: Any = None
        self.start()

    def run(self) -> None:
        body = self._body | ({"stream_options": {"include_usage": True}} if "stream" in self._body else {})
        with httpx.stream("POST", self._url + "/v1/completions", json=body, timeout=None) as answer:
            if "stream" in body:
                for line in answer.iter_lines():
                    if line.startswith("data: {"):
                        self._take(json.loads(line[6:]))
            else:
                self._take(json.loads(answer.read()))

    def _take(self, part: dict[str, Any]) -> None:
        self.usage = part.get("usage") or self.usage
        for choice in part.get("choices", [{"index": -1, "error": part}]):
            told = self.choices.setdefault(choice["index"], {"text": "", "ids": [], "scores": []})
            told["text"] += choice.get("text", "")
            told["ids"] += choice.get("token_ids") or []
            told["scores"] += (choice.get("logprobs") or {}).get("token_logprobs") or []
            told["end"] = choice.get("finish_reason"), choice.get("error")
        self.began.set()

    @property
    def outcome(self) -> Any:
        """All but for how much of the prompt was cached."""
        return self.choices, self.usage["prompt_tokens"], self.usage["completion_tokens"]


def ask(url: str) -> list[Call]:
    return [Call(url, body) for body in BODIES]


def outcomes(calls: list[Call]) -> list[Any]:
    for call in calls:
        call.join()
    return [call.outcome for call in calls]


@pytest.fixture(scope="module")
def doubled(start: Callable[..., Server]) -> Server:
    return start("--detokenizers", "2")


@pytest.fixture(scope="module")
def quiet(doubled: Server) -> list[Any]:
    return outcomes(ask(doubled.url))


@pytest.mark.parametrize(
    "victims",
    [
        ["scheduler"],
        ["tokenizer"],
        ["detokenizer"],
        ["scheduler", "detokenizer 1"],
        ["executor", "detokenizer"],
    ],
    ids=" and ".join,
)
def test_what_is_killed_is_not_noticed(doubled: Server, quiet: list[Any], victims: list[str]) -> None:
    calls = ask(doubled.url)
    calls[0].began.wait()
    family = doubled.family()
    for victim in victims:
        family[victim].kill()
    assert outcomes(calls) == quiet
