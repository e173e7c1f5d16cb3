"""Endpoints that answer a JSON body with a JSON body, at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import orjson

from stretto.roles.gateway import http
from stretto.roles.gateway.faults import Refused, error_json
from stretto.roles.gateway.reader import Reader
from stretto.roles.gateway.stream import HungUp
from stretto.roles.messages import Fault

T = TypeVar("T")


class Post:
    """An ASGI application: decodes the body, and answers with what `answer` makes of it or refuses."""

    def __init__(
        self,
        reader: Reader[T],
        answer: Callable[[T], Awaitable[Any]],
        max_body_bytes: int,
        error: Callable[[Fault], bytes] = error_json,
    ) -> None:
        self._reader, self._answer = reader, answer
        self._max_body_bytes, self._error = max_body_bytes, error

    async def __call__(self, scope: http.Scope, receive: http.Receive, send: http.Send) -> None:
        try:
            body = self._reader.read(await http.read_body(scope, receive, self._max_body_bytes))
            await http.answer(send, 200, orjson.dumps(await self._answer(body)))
        except Refused as refused:
            await http.refuse(send, receive, refused.fault, self._error)
        except HungUp:
            return
