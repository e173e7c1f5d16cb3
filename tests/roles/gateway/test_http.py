"""Bodies within limits, against a scripted ASGI client."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from stretto.roles.gateway import http
from stretto.roles.gateway.faults import OVERLOADED, Refused, refusal
from stretto.roles.gateway.stream import HungUp


class Client:
    """Hands out the given messages, then never another; keeps what it is sent."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self.messages = list(messages)
        self.sent: list[Any] = []

    async def receive(self) -> dict[str, Any]:
        if not self.messages:
            await asyncio.Event().wait()
        return self.messages.pop(0)

    async def send(self, message: Any) -> None:
        self.sent.append(message)


def part(body: bytes, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


def read(client: Client, limit: int = 10, **headers: str) -> bytes:
    scope = {
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    }
    return asyncio.run(http.read_body(scope, client.receive, limit))


def test_a_body_comes_in_parts() -> None:
    assert read(Client(part(b"01234"), part(b""), part(b"56789", more=False))) == b"0123456789"


def test_a_declared_length_over_the_limit_is_refused_unread() -> None:
    with pytest.raises(Refused) as caught:
        read(Client(), content_length="11")
    assert caught.value.fault.status == 413


def test_a_body_is_refused_as_soon_as_it_is_over_the_limit() -> None:
    client = Client(part(b"0123456"), part(b"789ab"), part(b"never read"))
    with pytest.raises(Refused) as caught:
        read(client)
    assert caught.value.fault.status == 413
    assert client.messages == [part(b"never read")]


def test_a_client_that_leaves_in_mid_body_is_not_answered() -> None:
    with pytest.raises(HungUp):
        read(Client(part(b"0"), {"type": "http.disconnect"}))


def test_a_refusal_is_one_json_answer() -> None:
    client = Client()
    asyncio.run(http.refuse(client.send, client.receive, OVERLOADED))
    start, body = client.sent
    assert start["status"] == 429
    assert (b"retry-after", b"1") in start["headers"]
    assert json.loads(body["body"])["error"]["code"] == "overloaded"
    assert body["more_body"] is False


def test_after_413_the_rest_of_the_body_is_thrown_away_before_closing() -> None:
    client = Client(part(b"rest"), part(b"end", more=False))
    asyncio.run(http.refuse(client.send, client.receive, refusal("too large", status=413).fault))
    start, body, last = client.sent
    assert (b"connection", b"close") in start["headers"]
    assert (b"content-length", str(len(body["body"])).encode()) in start["headers"]
    assert (body["more_body"], last["body"], last["more_body"]) == (True, b"", False)
    assert client.messages == []


def test_nobody_is_waited_for_longer_than_the_linger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "LINGER_SECONDS", 0)
    client = Client()
    asyncio.run(http.refuse(client.send, client.receive, refusal("too large", status=413).fault))
    assert client.sent[-1]["more_body"] is False
