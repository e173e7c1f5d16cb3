"""`POST /start_profile` and `POST /stop_profile`: record what every role does, and get it as one trace."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from stretto.roles.gateway.faults import Refused, error_json
from stretto.roles.gateway.parts import Parts


def routes(parts: Parts) -> list[BaseRoute]:
    """Both. Neither looks at its body."""
    profiler = parts.profiler

    async def start() -> bytes:
        await profiler.start()
        return orjson.dumps({"status": "recording"})

    return [
        Route("/start_profile", _answering(start), methods=["POST"]),
        Route("/stop_profile", _answering(profiler.stop), methods=["POST"]),
    ]


def _answering(act: Callable[[], Awaitable[bytes]]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            return Response(await act(), media_type="application/json")
        except Refused as refused:
            return Response(error_json(refused.fault), refused.fault.status, media_type="application/json")

    return endpoint
