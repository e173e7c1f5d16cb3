"""The first words of a server."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from stretto.roles.config import Config
from stretto.roles.greeting import greeting


def told(**options: Any) -> tuple[str, list[str]]:
    """The first line, and the command of the second as a shell would split it."""
    first, second = greeting(Config(**{"served_model_name": "it's", **options}), 1.94).splitlines()
    return first, shlex.split(second.removeprefix("Try: "))


@pytest.mark.parametrize(
    ("options", "where", "call"),
    [
        ({"port": 80}, "http://127.0.0.1:80", ["http://127.0.0.1:80/v1/chat/completions"]),
        ({"host": "::1", "port": 80}, "http://[::1]:80", ["http://[::1]:80/v1/chat/completions"]),
        ({"uds": "/a b"}, "unix:/a b", ["--unix-socket", "/a b", "http://localhost/v1/chat/completions"]),
    ],
)
def test_it_says_where_the_server_is_and_how_to_ask_it(
    options: dict[str, Any], where: str, call: list[str]
) -> None:
    first, command = told(**options)
    assert first == f"Stretto serves it's at {where} (ready in 1.9 s)"
    assert command[: len(call) + 1] == ["curl", *call]
    assert json.loads(command[-1])["model"] == "it's"


def test_a_key_is_asked_for_and_not_told() -> None:
    _, command = told(api_key="secret")
    assert "Authorization: Bearer KEY" in command
    assert "secret" not in " ".join(command)
    assert "Authorization: Bearer KEY" not in told()[1]
