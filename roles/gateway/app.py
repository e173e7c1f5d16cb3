"""The application: which path leads where, who may go there, and what errors look like on the way."""

from __future__ import annotations

from collections.abc import Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from stretto.roles.config import Config
from stretto.roles.gateway import (
    admin,
    anthropic,
    cache,
    completions,
    http,
    openapi,
    pages,
    profiling,
    responses,
    sglang,
    utilities,
    websocket,
)
from stretto.roles.gateway.cors import Cors
from stretto.roles.gateway.door import Door
from stretto.roles.gateway.faults import INTERNAL, refusal
from stretto.roles.gateway.guard import Guard, deny_handshake, error_of
from stretto.roles.gateway.intake import Intake
from stretto.roles.gateway.parts import Parts
from stretto.roles.gateway.profiler import Profiler
from stretto.roles.gateway.sessions import Sessions
from stretto.roles.messages import ToSupervisor
from stretto.roles.metrics import Meter
from stretto.roles.origins import origins
from stretto.shm.board import Board

MODULES = (
    completions, responses, anthropic, sglang, websocket, utilities, profiling, admin, cache, openapi, pages
)  # fmt: skip
"""Those that contribute to the route table, each by `routes(parts)`."""


def application(
    config: Config,
    door: Door,
    meter: Meter,
    board: Board,
    profiler: Profiler,
    sessions: Sessions,
    tell: Callable[[ToSupervisor], None],
) -> http.App:
    """The whole ASGI application of one gateway."""
    intake = Intake(config.served_model_name, config.allow_unknown_fields)
    parts = Parts(config, door, intake, meter, board, profiler, sessions, tell)
    app = Starlette(
        routes=[route for module in MODULES for route in module.routes(parts)],
        exception_handlers={HTTPException: _on_http_error, Exception: _on_bug},
    )
    app.router.redirect_slashes = False
    app.router.default = _nowhere
    guarded = Guard(app, config)
    allowed = origins(config.allowed_origins)
    return Cors(guarded, allowed) if allowed else guarded


async def _nowhere(scope: http.Scope, receive: http.Receive, send: http.Send) -> None:
    """No route leads there; Starlette would answer a WebSocket 403, as if a key were wrong."""
    if scope["type"] != "websocket":
        raise HTTPException(404)
    await deny_handshake(receive, send, refusal(_nothing_at(scope["path"], scope["app"]), status=404).fault)


def _nothing_at(path: str, app: Starlette) -> str:
    """Names what was meant, where a slash or a prefix is all that was wrong."""
    known, bare = {getattr(route, "path", None) for route in app.routes}, path.rstrip("/")
    guesses = (bare, f"/v1{bare}", bare.removeprefix("/v1"))
    meant = next((f" Did you mean {guess}?" for guess in guesses if guess in known), "")
    return f"There is nothing at {path}.{meant}"


async def _on_http_error(request: Request, error: Exception) -> Response:
    """What Starlette's routing refuses: an unknown path, a wrong method."""
    assert isinstance(error, HTTPException)
    message = {
        404: _nothing_at(request.url.path, request.app),
        405: f"{request.url.path} does not know the method {request.method}.",
    }.get(error.status_code, error.detail)
    fault = refusal(message, status=error.status_code).fault
    body = error_of(request.url.path)(fault)
    return Response(body, error.status_code, error.headers, "application/json")


async def _on_bug(request: Request, error: Exception) -> Response:
    """A bug of ours: the client gets an answer, and Starlette raises it again.

    uvicorn then logs it and closes the connection, which the client had better know.
    """
    body = error_of(request.url.path)(INTERNAL)
    return Response(body, INTERNAL.status, {"connection": "close"}, "application/json")
