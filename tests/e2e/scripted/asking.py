"""Ask a server for a completion, whole or streamed, and read the answer as one value."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

DEFAULTS = {"temperature": 0, "return_token_ids": True, "max_tokens": 64}

FORM = ("tokens", "token_logprobs", "top_logprobs", "text_offset")


@dataclass
class Choice:
    """One choice, put together from all that was said of it."""

    text: str = ""
    ids: list[int] = field(default_factory=list)
    finish: str | None = None
    stop: str | int | None = None
    logprobs: dict[str, list[Any]] | None = None
    prompt_logprobs: list[dict[str, Any] | None] | None = None
    prompt_ids: list[int] | None = None

    def add(self, said: dict[str, Any]) -> None:
        """What a chunk, or a whole answer, says of the choice."""
        assert self.finish is None, f"after the end: {said}"
        self.text += said["text"]
        self.ids += said.get("token_ids") or []
        if said["logprobs"] is not None and said["logprobs"]["tokens"]:
            self.logprobs = self.logprobs or {name: [] for name in FORM}
            for name in FORM:
                self.logprobs[name] += said["logprobs"][name]
        self.finish, self.stop = said["finish_reason"], said.get("stop_reason")
        if "prompt_logprobs" in said:
            assert self.prompt_logprobs is None
            self.prompt_logprobs = said["prompt_logprobs"]
        self.prompt_ids = said.get("prompt_token_ids", self.prompt_ids)


@dataclass
class Answer:
    """All choices by index, and the counts."""

    choices: list[Choice]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = field(default=0, compare=False)
    """Depends on what was asked before."""

    @property
    def only(self) -> Choice:
        """The choice of an answer that has one."""
        (choice,) = self.choices
        return choice


class Failed(Exception):
    """The answer is an error, or a stream broke off with one."""

    def __init__(self, status: int, error: dict[str, Any], chunks: list[dict[str, Any]]) -> None:
        super().__init__(status, error)
        self.status, self.error, self.chunks = status, error, chunks


class Asker:
    """A client of one server; requests have `DEFAULTS` unless they say otherwise."""

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(base_url=url, timeout=60, limits=httpx.Limits(max_connections=None))

    def ask(self, prompt: str | Sequence[int], *, stream: bool = False, **fields: Any) -> Answer:
        """A completion. Raises `Failed`."""
        body = {**DEFAULTS, "prompt": _plain(prompt), **fields}
        return together(self.chunks(body)) if stream else whole(self.post("/v1/completions", body))

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The JSON answer. Raises `Failed`."""
        answer = self.http.post(path, json=body)
        if answer.status_code != 200:
            raise Failed(answer.status_code, answer.json()["error"], [])
        return answer.json()

    def chunks(self, body: dict[str, Any], path: str = "/v1/completions") -> list[dict[str, Any]]:
        """Every chunk of a stream that ends as it should, the last with the usage. Raises `Failed`."""
        options = {"include_usage": True} | body.get("stream_options", {})
        with self.http.stream(
            "POST", path, json={**body, "stream": True, "stream_options": options}
        ) as answer:
            if answer.status_code != 200:
                answer.read()
                raise Failed(answer.status_code, answer.json()["error"], [])
            payloads = [line[6:] for line in answer.iter_lines() if line.startswith("data: ")]
        chunks = [json.loads(payload) for payload in payloads[:-1]]
        if payloads[-1] != "[DONE]":
            raise Failed(200, json.loads(payloads[-1])["error"], chunks)
        return chunks


def whole(answer: dict[str, Any]) -> Answer:
    """An answer that was not streamed."""
    choices = [Choice() for _ in answer["choices"]]
    for said in answer["choices"]:
        choices[said["index"]].add(said)
    return _answer(choices, answer["usage"])


def together(chunks: list[dict[str, Any]]) -> Answer:
    """The answer that a stream spells."""
    *chunks, last = chunks
    assert last["choices"] == []
    choices: dict[int, Choice] = {}
    for chunk in chunks:
        (said,) = chunk["choices"]
        choices.setdefault(said["index"], Choice()).add(said)
    return _answer([choices[i] for i in range(len(choices))], last["usage"])


def _answer(choices: list[Choice], usage: dict[str, Any]) -> Answer:
    prompt, completion = usage["prompt_tokens"], usage["completion_tokens"]
    assert usage["total_tokens"] == prompt + completion
    return Answer(choices, prompt, completion, usage["prompt_tokens_details"]["cached_tokens"])


def _plain(prompt: str | Sequence[int]) -> str | list[int]:
    return prompt if isinstance(prompt, str) else list(prompt)
