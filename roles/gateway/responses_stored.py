"""The endpoints of responses that are stored: fetch, follow, cancel, delete, list the input."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from stretto.roles.gateway import http
from stretto.roles.gateway.faults import Refused, error_json, refusal
from stretto.roles.gateway.responses_store import Record, Store

MAX_ITEMS = 100
DEFAULT_ITEMS = 20

_INTEGER = re.compile(r"-?[0-9]{1,18}")

Page = Callable[[Request], Coroutine[Any, Any, Any]]


class Stored:
    """What the endpoints do. Each raises `Refused`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def routes(self) -> list[BaseRoute]:
        """All of them, for Starlette."""
        one = "/v1/responses/{id}"
        return [
            Route(one, self.retrieve),
            Route(one, _page(self.delete), methods=["DELETE"]),
            Route(f"{one}/cancel", _page(self.cancel), methods=["POST"]),
            Route(f"{one}/input_items", _page(self.input_items)),
        ]

    async def retrieve(self, request: Request) -> Response:
        """The response as it is now; with `stream`, its events after the one numbered `starting_after`."""
        try:
            record = self._store.get(request.path_params["id"])
            if not _flag(request, "stream"):
                return _json(record.response)
            return Followed(record, _number(request, "starting_after", -1, 2**31) + 1)
        except Refused as refused:
            return _refuse(refused)

    async def delete(self, request: Request) -> Any:
        """Forget a response; if it runs, it is cancelled."""
        id = request.path_params["id"]
        self._store.delete(id)
        return {"id": id, "object": "response", "deleted": True}

    async def cancel(self, request: Request) -> Any:
        """End a response that runs in the background; one that has ended stays as it is."""
        record = self._store.get(request.path_params["id"])
        if record.task is None:
            raise refusal("Only a response with background=true can be cancelled.", "response_id")
        record.cancel()
        await asyncio.wait([record.task])
        return record.response

    async def input_items(self, request: Request) -> Any:
        """What the response was made from, without the conversation before it; the latest first."""
        items = self._store.get(request.path_params["id"]).items
        limit = _number(request, "limit", 1, MAX_ITEMS, DEFAULT_ITEMS)
        order = request.query_params.get("order", "desc")
        if order not in ("asc", "desc"):
            raise refusal("order: Expected asc or desc.", "order")
        items = items if order == "asc" else items[::-1]
        rest = _after(items, request.query_params.get("after"))
        page = rest[:limit]
        return {
            "object": "list",
            "data": page,
            "first_id": page[0]["id"] if page else None,
            "last_id": page[-1]["id"] if page else None,
            "has_more": len(rest) > limit,
        }


class Followed(Response):
    """A response's events from one on, as they come."""

    def __init__(self, record: Record, start: int) -> None:
        if record.events is None:
            raise refusal(
                "Only a response with background=true and stream=true can be streamed again.", "stream"
            )
        super().__init__()
        self._record, self._start = record, start

    async def __call__(self, scope: http.Scope, receive: http.Receive, send: http.Send) -> None:
        await follow(self._record, self._start, receive, send)


async def follow(record: Record, start: int, receive: http.Receive, send: http.Send) -> None:
    """Send a record's events from the one numbered `start` to the last. Who leaves cancels nothing."""
    gone = asyncio.create_task(_gone(receive))
    await http.start_stream(send)
    try:
        while not gone.done():
            news, ended = (record.events or [])[start:], record.ended
            start += len(news)
            await http.write(send, b"".join(news), more=not ended)
            if ended:
                return
            await _either(gone, record)
    finally:
        gone.cancel()


async def _gone(receive: http.Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _either(gone: asyncio.Task[None], record: Record) -> None:
    """Wait until the client leaves, or the record has something new."""
    changed = asyncio.create_task(record.changed())
    await asyncio.wait([gone, changed], return_when=asyncio.FIRST_COMPLETED)
    changed.cancel()


def _page(answer: Page) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    async def page(request: Request) -> Response:
        try:
            return _json(await answer(request))
        except Refused as refused:
            return _refuse(refused)

    return page


def _json(body: Any) -> Response:
    return Response(orjson.dumps(body), media_type="application/json")


def _refuse(refused: Refused) -> Response:
    return Response(error_json(refused.fault), refused.fault.status, media_type="application/json")


def _flag(request: Request, name: str) -> bool:
    value = request.query_params.get(name, "false").lower()
    if value not in ("true", "false"):
        raise refusal(f"{name}: Expected true or false.", name)
    return value == "true"


def _number(request: Request, name: str, least: int, most: int, default: int | None = None) -> int:
    """An integer of the query; without a default, `least`."""
    value = request.query_params.get(name)
    if value is None:
        return least if default is None else default
    if not _INTEGER.fullmatch(value) or not least <= int(value) <= most:
        raise refusal(f"{name}: Expected an integer from {least} to {most}.", name)
    return int(value)


def _after(items: list[dict[str, Any]], id: str | None) -> list[dict[str, Any]]:
    if id is None:
        return items
    places = [place for place, item in enumerate(items) if item["id"] == id]
    if not places:
        raise refusal(f"after: there is no item {id!r}.", "after")
    return items[places[0] + 1 :]
