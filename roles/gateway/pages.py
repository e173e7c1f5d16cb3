"""The small GET endpoints: models, health, metrics, version, and a word to who comes in by the front."""

from __future__ import annotations

import time
from typing import Any

import orjson
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from stretto import __version__
from stretto.roles.config import Config
from stretto.roles.gateway.exposition import BoardCollector
from stretto.roles.gateway.faults import error_json, refusal, unknown_model
from stretto.roles.gateway.health import health
from stretto.roles.gateway.parts import Parts
from stretto.roles.gateway.vllm_metrics import VllmCollector
from stretto.shm.board import Board

OPEN_PATHS = frozenset({"/", "/docs", "/health", "/health_generate", "/metrics", "/openapi.json", "/version"})
"""Served without an API key."""


def routes(parts: Parts) -> list[BaseRoute]:
    """All pages."""
    return Pages(parts.config, parts.board).routes()


class Pages:
    """What the endpoints show, and their routes."""

    def __init__(self, config: Config, board: Board) -> None:
        self._config, self._board = config, board
        self._model = {
            "id": config.served_model_name,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "stretto",
            "max_model_len": config.max_model_len,
        }
        self._registry = CollectorRegistry()
        self._registry.register(BoardCollector(board, config.served_model_name))
        self._registry.register(VllmCollector(board, config.served_model_name, config.page_size))

    def routes(self) -> list[BaseRoute]:
        """All of them, for Starlette."""
        return [
            Route("/", self.root),
            Route("/health", self.health),
            Route("/metrics", self.metrics),
            Route("/version", self.version),
            Route("/v1/models", self.models),
            Route("/v1/models/{id:path}", self.model),
            Route("/v1/stream", self.upgrade),
        ]

    async def root(self, request: Request) -> Response:
        text = f"Stretto {__version__}: an OpenAI-compatible API under /v1, and a WebSocket at /v1/stream.\n"
        return PlainTextResponse(text)

    async def health(self, request: Request) -> Response:
        return _json(*health(self._board, self._config.heartbeat_timeout))

    async def metrics(self, request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(self._registry), headers={"content-type": content_type})

    async def version(self, request: Request) -> Response:
        return _json(200, {"version": __version__})

    async def models(self, request: Request) -> Response:
        return _json(200, {"object": "list", "data": [self._model]})

    async def model(self, request: Request) -> Response:
        name = request.path_params["id"]
        if name != self._model["id"]:
            fault = unknown_model(name, self._config.served_model_name).fault
            return Response(error_json(fault), fault.status, media_type="application/json")
        return _json(200, self._model)

    async def upgrade(self, request: Request) -> Response:
        fault = refusal("/v1/stream is a WebSocket; connect to it with one.", status=426).fault
        return Response(
            error_json(fault), 426, {"upgrade": "websocket", "connection": "upgrade"}, "application/json"
        )


def _json(status: int, body: Any) -> Response:
    return Response(orjson.dumps(body), status, media_type="application/json")
