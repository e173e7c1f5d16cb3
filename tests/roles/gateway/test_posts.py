"""A JSON body in, a JSON body out."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import orjson

from stretto.roles.gateway import http
from stretto.roles.gateway.faults import refusal
from stretto.roles.gateway.posts import Post
from stretto.roles.gateway.reader import Reader
from stretto.roles.messages import Fault


class Sum(msgspec.Struct, forbid_unknown_fields=True):
    a: int
    b: int


async def add(body: Sum) -> dict[str, int]:
    if body.b == 0:
        raise refusal("b: is nothing to add.", "b")
    return {"sum": body.a + body.b}


def shout(fault: Fault) -> bytes:
    return orjson.dumps({"no": fault.param})


def post(data: bytes, app: Post, limit_message: http.Message | None = None) -> tuple[int | None, Any]:
    """Status and body of the answer, None where there is none."""
    sent: list[http.Message] = []

    async def receive() -> http.Message:
        return limit_message or {"type": "http.request", "body": data}

    async def send(message: http.Message) -> None:
        sent.append(message)

    asyncio.run(app({"headers": []}, receive, send))
    return (sent[0]["status"], orjson.loads(sent[1]["body"])) if sent else (None, None)


def test_the_answer_is_json() -> None:
    assert post(b'{"a":1,"b":2}', Post(Reader(Sum), add, 100)) == (200, {"sum": 3})


def test_a_refusal_of_the_body_or_of_the_answer_has_the_given_form() -> None:
    app = Post(Reader(Sum), add, 100, shout)
    assert post(b'{"a":1}', app) == (400, {"no": "b"})
    assert post(b'{"a":1,"b":0}', app) == (400, {"no": "b"})


def test_a_client_that_leaves_gets_nothing() -> None:
    assert post(b"", Post(Reader(Sum), add, 100), {"type": "http.disconnect"}) == (None, None)
