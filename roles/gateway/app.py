"""The application: which path leads where, who may go there, and what errors look like on the way."""

from __future__ import annotations

import hmac

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from stretto.roles.config import Config
from stretto.roles.gateway import (
    anthropic,
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
from stretto.roles.gateway.anthropic_answers import error_json as anthropic_error
from stretto.roles.gateway.door import Door
from stretto.roles.gateway.faults import INTERNAL, error_json, refusal
from stretto.roles.gateway.intake import Intake
from stretto.roles.gateway.pages import OPEN_PATHS
from stretto.roles.gateway.parts import Parts
from stretto.roles.gateway.profiler import Profiler
from stretto.roles.messages import Fault
from stretto.roles.metrics import Meter
from stretto.shm.board import Board

MODULES = (completions, responses, anthropic, sglang, websocket, utilities, profiling, openapi, pages)
"""Those that contribute to the route table, each by `routes(parts)`."""


def application(config: Config, door: Door, meter: Meter, board: Board, profiler: Profiler) -> http.App:
    """The whole ASGI application of one gateway."""
    intake = Intake(config.served_model_name, config.allow_unknown_fields)
    parts = Parts(config, door, intake, meter, board, profiler)
    app = Starlette(
        routes=[route for module in MODULES for route in module.routes(parts)],
        exception_handlers={HTTPException: _on_http_error, Exception: _on_bug},
    )
    app.router.redirect_slashes = False
    return Guard(app, config.api_key) if config.api_key else app


class Guard:
    """Lets nobody past without the API key, except to `OPEN_PATHS`."""

    def __init__(self, app: http.App, api_key: str) -> None:
        self._app, self._key = app, api_key.encode()

    async def __call__(self, scope: http.Scope, receive: http.Receive, send: http.Send) -> None:
        if scope["path"] in OPEN_PATHS or self._admits(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await _deny_handshake(receive, send, _UNAUTHORIZED)
        else:
            await http.answer(send, 401, _error(scope["path"], _UNAUTHORIZED))

    def _admits(self, scope: http.Scope) -> bool:
        """Compares in a time that tells nothing about how much of the key is right."""
        scheme, _, key = (http.header(scope, b"authorization") or b"").partition(b" ")
        if _is_anthropics(scope["path"]) and (other := http.header(scope, b"x-api-key")) is not None:
            scheme, key = b"bearer", other
        return scheme.lower() == b"bearer" and hmac.compare_digest(key.strip(), self._key)


_UNAUTHORIZED = refusal(
    "The API key is missing or wrong; send it as 'Authorization: Bearer KEY', or x-api-key to /v1/messages.",
    code="invalid_api_key",
    status=401,
).fault


def _is_anthropics(path: str) -> bool:
    return path.startswith("/v1/messages")


def _error(path: str, fault: Fault) -> bytes:
    """The body of an error, in the form of the API that the path belongs to."""
    return (anthropic_error if _is_anthropics(path) else error_json)(fault)


async def _deny_handshake(receive: http.Receive, send: http.Send, fault: Fault) -> None:
    """Answer a WebSocket handshake with an HTTP error."""
    await receive()
    headers = [(b"content-type", b"application/json"), (b"www-authenticate", b"Bearer")]
    await send({"type": "websocket.http.response.start", "status": fault.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": error_json(fault)})


async def _on_http_error(request: Request, error: Exception) -> Response:
    """What Starlette's routing refuses: an unknown path, a wrong method."""
    assert isinstance(error, HTTPException)
    message = {
        404: f"There is nothing at {request.url.path}.",
        405: f"{request.url.path} does not know the method {request.method}.",
    }.get(error.status_code, error.detail)
    fault = refusal(message, status=error.status_code).fault
    body = _error(request.url.path, fault)
    return Response(body, error.status_code, error.headers, "application/json")


async def _on_bug(request: Request, error: Exception) -> Response:
    """A bug of ours: the client gets an answer, and Starlette raises it again.

    uvicorn then logs it and closes the connection, which the client had better know.
    """
    body = _error(request.url.path, INTERNAL)
    return Response(body, INTERNAL.status, {"connection": "close"}, "application/json")
