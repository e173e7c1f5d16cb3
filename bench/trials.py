"""Requests of every kind, asked over HTTP and WebSocket, and all that came back of them."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import httpx
import orjson

from stretto.roles.client.aio import AsyncClient
from stretto.roles.client.frames import Completion

_COMMON = {"return_token_ids": True, "stream": True, "stream_options": {"include_usage": True}}
_PROMPTS = (
    "Once upon a time, in a village by the sea,",
    "The three laws of thermodynamics are",
    "def quicksort(items):",
    "A short history of the bicycle:",
)
_VARIETIES: tuple[dict[str, Any], ...] = (
    {"temperature": 0, "ignore_eos": True},
    {"temperature": 0.9, "seed": 7, "ignore_eos": True},
    {"temperature": 1.0, "top_p": 0.9, "seed": 11, "n": 2},
    {"temperature": 0, "logprobs": 2, "ignore_eos": True},
    {"temperature": 0, "stop": [" the", "\n\n"]},
    {"temperature": 0.7, "seed": 3, "frequency_penalty": 0.5, "presence_penalty": 0.2},
    {"temperature": 0, "stream": False, "ignore_eos": True},
)
TRANSPORTS = ("http", "websocket")


class Trial(NamedTuple):
    """A request that has one right answer, and how it is asked."""

    transport: str
    body: dict[str, Any]


def trials(tokens: int) -> list[Trial]:
    """One of each variety, prompt and transport; answers have up to `tokens` tokens."""
    bodies = [
        {**_COMMON, "prompt": prompt, "max_tokens": tokens, **variety}
        for prompt in _PROMPTS
        for variety in _VARIETIES
    ]
    return [Trial(transport, body) for body in bodies for transport in TRANSPORTS]


class Outcome:
    """What a client got: the answer, put together from its pieces, or an error; and when the pieces came."""

    def __init__(self) -> None:
        self.asked = time.monotonic()
        self.beats: list[float] = []
        """`time.monotonic()` of each piece."""
        self.error = ""
        self.answer: dict[str, Any] = {}
        """Choices by number, and the usage but for what the cache did."""

    def piece(self, choice: int, text: str, token_ids: list[int], logprobs: Any = ()) -> None:
        """Take in the next piece of a choice."""
        self.beats.append(time.monotonic())
        known = self.answer.setdefault(str(choice), {"text": "", "token_ids": [], "logprobs": []})
        known["text"] += text
        known["token_ids"] += token_ids
        known["logprobs"] += logprobs

    def end(self, choice: int, reason: str | None, stop_reason: Any = None) -> None:
        """Take in how a choice ended. Ending twice is an error of the server's."""
        known = self.answer.setdefault(str(choice), {"text": "", "token_ids": [], "logprobs": []})
        if "finish_reason" in known:
            self.error = f"choice {choice} ended twice"
        known |= {"finish_reason": reason, "stop_reason": stop_reason}

    def count(self, prompt: int, completion: int) -> None:
        """Take in the usage."""
        self.answer["usage"] = [prompt, completion]


async def ask(trial: Trial, http: httpx.AsyncClient, socket: AsyncClient) -> Outcome:
    """The outcome of a trial; what goes wrong is told in its `error`."""
    outcome = Outcome()
    try:
        if trial.transport == "websocket":
            await _by_socket(trial.body, socket, outcome)
        elif trial.body["stream"]:
            await _by_events(trial.body, http, outcome)
        else:
            _read(orjson.loads(await _whole(trial.body, http)), outcome)
    except Exception as error:  # whatever a client can be told is an outcome
        outcome.error = f"{type(error).__name__}: {error}"
    return outcome


async def _whole(body: dict[str, Any], http: httpx.AsyncClient) -> bytes:
    answer = await http.post("/v1/completions", json={k: v for k, v in body.items() if k != "stream_options"})
    if answer.is_error:
        raise ConnectionError(f"HTTP {answer.status_code}: {answer.text[:300]}")
    return answer.content


async def _by_events(body: dict[str, Any], http: httpx.AsyncClient, outcome: Outcome) -> None:
    async with http.stream("POST", "/v1/completions", json=body) as answer:
        if answer.is_error:
            await answer.aread()
            raise ConnectionError(f"HTTP {answer.status_code}: {answer.text[:300]}")
        async for line in answer.aiter_lines():
            if line == "data: [DONE]":
                return
            if line.startswith("data: "):
                _read(orjson.loads(line[6:]), outcome)
    raise ConnectionError("the stream ended without [DONE]")


def _read(chunk: dict[str, Any], outcome: Outcome) -> None:
    """A chunk of a stream, or a whole answer."""
    if error := chunk.get("error"):
        raise ConnectionError(str(error.get("message")))
    for choice in chunk["choices"]:
        logprobs = choice.get("logprobs") or {}
        told = list(zip(logprobs.get("tokens", ()), logprobs.get("token_logprobs", ()), strict=True))
        ids = choice.get("token_ids") or []
        if ids or choice["text"]:
            outcome.piece(choice["index"], choice["text"], ids, [list(pair) for pair in told])
        if choice.get("finish_reason"):
            outcome.end(choice["index"], choice["finish_reason"], choice.get("stop_reason"))
    if usage := chunk.get("usage"):
        outcome.count(usage["prompt_tokens"], usage["completion_tokens"])


async def _by_socket(body: dict[str, Any], socket: AsyncClient, outcome: Outcome) -> None:
    fields = {k: v for k, v in body.items() if k not in ("prompt", "stream_options")}
    stream = socket.stream(body["prompt"], **fields)
    async for delta in stream:
        told = [[one.id, one.logprob] for one in delta.logprobs]
        outcome.piece(delta.choice, delta.text, delta.token_ids, told)
    completion = stream.completion
    assert completion is not None  # the iteration raises where there is none
    for number, choice in enumerate([completion, *completion.others]):
        _finish(number, choice, body["stream"], outcome)
    outcome.count(completion.usage.prompt_tokens, completion.usage.completion_tokens)


def _finish(number: int, choice: Completion, streamed: bool, outcome: Outcome) -> None:
    if not streamed:
        outcome.piece(number, choice.text, choice.token_ids, [[t.id, t.logprob] for t in choice.logprobs])
    outcome.end(number, choice.finish_reason, choice.stop_reason)
