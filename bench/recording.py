"""Recording a server while it has a load that is always the same."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

MODEL = "SmolLM2-135M-Instruct"


def load(url: str, requests: int, tokens: int) -> None:
    """So many greedy streams of so many tokens at once."""
    with ThreadPoolExecutor(requests) as pool:
        list(pool.map(lambda number: post(url + "/v1/completions", body(number, tokens)), range(requests)))


def body(number: int, tokens: int) -> dict[str, Any]:
    """A greedy stream of so many tokens, of a prompt that others of another number do not share."""
    common = {"model": MODEL, "max_tokens": tokens, "ignore_eos": True, "temperature": 0, "stream": True}
    return {**common, "prompt": f"Story {number}:"}


def start(url: str) -> None:
    """Begin to record."""
    post(url + "/start_profile", {})


def stop(url: str) -> dict[str, Any]:
    """End, and get the trace."""
    trace: dict[str, Any] = json.loads(post(url + "/stop_profile", {}))
    return trace


def post(url: str, body: Mapping[str, Any]) -> bytes:
    """The answer to a JSON body."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        content: bytes = answer.read()
    return content
