"""`GET /cache` and `POST /flush_cache`: what the prefix cache holds, in numbers, and to drop it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from stretto.roles import messages as m
from stretto.roles.gateway.faults import Refused, error_json, refusal
from stretto.roles.gateway.parts import Parts
from stretto.roles.metrics import offsets
from stretto.shm.board import Board

PATIENCE_SECONDS = 10.0
"""A scheduler or detokenizer that dies takes the question with it."""


def routes(parts: Parts) -> list[BaseRoute]:
    """Both. Neither looks at its body."""

    async def ask(flush: bool) -> m.CacheReport:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                reply = await parts.door.ask(lambda uid, gateway: m.CacheQuery(uid, gateway, flush))
        except TimeoutError:
            raise refusal("The scheduler does not answer; try again.", status=503) from None
        assert isinstance(reply, m.CacheReport)
        return reply

    async def show(request: Request) -> Response:
        rates = hit_rates(parts.board)
        return await _answering(ask(False), lambda report: {**rates, **summary_of(report.summary)})

    async def flush(request: Request) -> Response:
        return await _answering(ask(True), lambda report: {"flushed_tokens": report.flushed})

    return [Route("/cache", show, methods=["GET"]), Route("/flush_cache", flush, methods=["POST"])]


def hit_rates(board: Board) -> dict[str, float]:
    """Shares of all prompt tokens so far: cached anywhere, in host memory, on disk; 0 before the first."""
    row, table = board.row("scheduler.0"), offsets("scheduler")
    tiers, prompts = ("", "host_", "disk_"), row[table["prompt_tokens_total"][0]]
    cached = {f"{tier}hit_rate": row[table[f"{tier}cached_tokens_total"][0]] for tier in tiers}
    return {name: round(tokens / prompts, 4) if prompts else 0.0 for name, tokens in cached.items()}


def summary_of(summary: m.CacheSummary) -> dict[str, Any]:
    """As JSON shows it."""
    names = summary.__struct_fields__
    body: dict[str, Any] = {name: getattr(summary, name) for name in names if name != "largest"}
    return {**body, "largest": [msgspec.structs.asdict(prefix) for prefix in summary.largest]}


async def _answering(
    asking: Awaitable[m.CacheReport], shape: Callable[[m.CacheReport], dict[str, Any]]
) -> Response:
    try:
        return Response(orjson.dumps(shape(await asking)), media_type="application/json")
    except Refused as refused:
        fault = refused.fault
        return Response(error_json(fault), fault.status, media_type="application/json")
