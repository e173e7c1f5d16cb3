"""The small GET endpoints: models, health, load, metrics, version, and a word of welcome."""

from __future__ import annotations

import time
from typing import Any

import orjson
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from stretto import __version__
from stretto.roles.config import Config
from stretto.roles.gateway.exposition import BoardCollector, summed
from stretto.roles.gateway.faults import error_json, refusal, unknown_model
from stretto.roles.gateway.health import health
from stretto.roles.gateway.parts import Parts
from stretto.roles.gateway.vllm_metrics import VllmCollector
from stretto.shm.board import Board

OPEN_PATHS = frozenset(
    {"/", "/docs", "/health", "/health_generate", "/load", "/metrics", "/openapi.json", "/ping", "/version"}
)
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
            Route("/ping", self.health, methods=["GET", "POST"]),
            Route("/load", self.load),
            Route("/metrics", self.metrics),
            Route("/version", self.version),
            Route("/v1/models", self.models),
            Route("/v1/models/{id:path}", self.model),
            Route("/get_model_info", self.model_info),
            Route("/model_info", self.model_info),
            Route("/v1/stream", self.upgrade),
        ]

    async def root(self, request: Request) -> Response:
        text = f"Stretto {__version__}: an OpenAI-compatible API under /v1, and a WebSocket at /v1/stream.\n"
        return PlainTextResponse(text)

    async def health(self, request: Request) -> Response:
        return _json(*health(self._board, self._config.heartbeat_timeout))

    async def load(self, request: Request) -> Response:
        (live,) = summed(self._board, "gateway", "requests_live")
        return _json(200, {"server_load": int(live)})

    async def metrics(self, request: Request) -> Response:
        """As text, which every scraper reads; the library spoils names with colons in OpenMetrics."""
        return Response(generate_latest(self._registry), headers={"content-type": CONTENT_TYPE_PLAIN_0_0_4})

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

    async def model_info(self, request: Request) -> Response:
        """The name serves where SGLang has paths, which are nobody else's business."""
        name = self._config.served_model_name
        return _json(200, {"model_path": name, "tokenizer_path": name, "is_generation": True})

    async def upgrade(self, request: Request) -> Response:
        fault = refusal("/v1/stream is a WebSocket; connect to it with one.", status=426).fault
        return Response(
            error_json(fault), 426, {"upgrade": "websocket", "connection": "upgrade"}, "application/json"
        )


def _json(status: int, body: Any) -> Response:
    return Response(orjson.dumps(body), status, media_type="application/json")
