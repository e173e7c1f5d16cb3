"""Endpoints around generation: `/tokenize` and `/detokenize` in vLLM's shape, `/abort`, `/server_info`."""

from __future__ import annotations

import platform
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Annotated, Any, TypeVar

import msgspec
import orjson
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from stretto import __version__
from stretto.roles import messages as m
from stretto.roles.config import Config
from stretto.roles.gateway.bodies import Message, TokenId
from stretto.roles.gateway.checks import check_packs
from stretto.roles.gateway.door import Door
from stretto.roles.gateway.faults import refusal, unknown_model
from stretto.roles.gateway.health import health
from stretto.roles.gateway.parts import Parts
from stretto.roles.gateway.posts import Post
from stretto.roles.gateway.reader import Reader
from stretto.roles.gateway.turns import turns
from stretto.shm.board import Board

T = TypeVar("T")

PRIVATE = ("api_key", "admin_key", "model", "model_dir", "cache_dir", "uds")
"""Of the configuration: secrets, and paths of this machine."""

LIBRARIES = ("torch", "transformers", "tokenizers", "numba", "msgspec", "pyzmq", "starlette", "uvicorn")


class TokenizeBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`POST /tokenize`: a text, or a conversation as the model's template writes it."""

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[Message], Meta(min_length=1)] | None = None
    add_special_tokens: bool | None = None
    """Whether the tokenizer adds its own; by default to a text, not to a conversation."""
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    return_token_strs: bool | None = None


class DetokenizeBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`POST /detokenize`: ids, special tokens shown."""

    model: str | None = None
    tokens: list[TokenId]


class AbortBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`POST /abort` and `/abort_request`: one of the ids under which requests are known to their clients."""

    request_id: str | list[str] | None = None
    rid: str | list[str] | None = None
    """SGLang's name of `request_id`."""
    abort_all: bool = False


def routes(parts: Parts) -> list[BaseRoute]:
    """All of them."""
    config, utilities = parts.config, Utilities(parts.config, parts.door, parts.board)

    def post(path: str, body: type[T], answer: Callable[[T], Awaitable[Any]]) -> Route:
        reader = Reader(body, config.allow_unknown_fields)
        return Route(path, Post(reader, answer, config.max_body_bytes), methods=["POST"])

    return [
        post("/tokenize", TokenizeBody, utilities.tokenize),
        post("/detokenize", DetokenizeBody, utilities.detokenize),
        post("/abort", AbortBody, utilities.abort),
        post("/abort_request", AbortBody, utilities.abort),
        Route("/server_info", utilities.server_info),
        Route("/get_server_info", utilities.server_info),
    ]


class Utilities:
    """What the endpoints do."""

    def __init__(self, config: Config, door: Door, board: Board) -> None:
        self._config, self._door, self._board = config, door, board

    async def tokenize(self, body: TokenizeBody) -> dict[str, Any]:
        """Ids, and their texts if wanted. Raises `Refused`."""
        self._check_model(body.model)
        _check_tokenize(body)
        reply = await self._door.ask(
            lambda uid, gateway: m.Tokenize(
                uid=uid,
                gateway=gateway,
                prompt=body.prompt,
                messages=None if body.messages is None else turns(body.messages),
                template_kwargs=body.chat_template_kwargs or {},
                add_generation_prompt=body.add_generation_prompt is not False
                and not body.continue_final_message,
                continue_final_message=bool(body.continue_final_message),
                add_special_tokens=body.add_special_tokens,
            )
        )
        assert isinstance(reply, m.Tokenized)
        return {
            "count": len(reply.token_ids),
            "max_model_len": reply.max_model_len,
            "tokens": reply.token_ids,
            "token_strs": reply.token_strs if body.return_token_strs else None,
        }

    async def detokenize(self, body: DetokenizeBody) -> dict[str, Any]:
        """The text of the ids. Raises `Refused`."""
        self._check_model(body.model)
        reply = await self._door.ask(lambda uid, gateway: m.Detokenize(uid, gateway, body.tokens))
        assert isinstance(reply, m.Detokenized)
        return {"prompt": reply.text}

    async def abort(self, body: AbortBody) -> dict[str, Any]:
        """End live requests of this gateway; an id that is not live is no mistake, it may just have ended."""
        names = [*_list(body.request_id), *_list(body.rid)]
        if not names and not body.abort_all:
            raise refusal("Name the request to end, as request_id.", "request_id")
        named = [stream for name in names for stream in self._door.named(name)]
        streams = self._door.streams if body.abort_all else named
        for stream in streams:
            self._door.cancel(stream)
        return {"aborted": len(streams)}

    async def server_info(self, request: Request) -> Response:
        """The configuration without secrets and paths, the state of each role, the versions of what runs."""
        _, state = health(self._board, self._config.heartbeat_timeout)
        config = msgspec.to_builtins(self._config)
        for field in PRIVATE:
            del config[field]
        body = {
            "version": __version__,
            "model": self._config.served_model_name,
            "max_model_len": self._config.max_model_len,
            "config": config,
            "roles": state["roles"],
            "versions": {"python": platform.python_version(), **{name: version(name) for name in LIBRARIES}},
        }
        return Response(orjson.dumps(body), media_type="application/json")

    def _check_model(self, model: str | None) -> None:
        if model not in (None, self._config.served_model_name):
            raise unknown_model(model, self._config.served_model_name)


def _check_tokenize(body: TokenizeBody) -> None:
    if (body.prompt is None) == (body.messages is None):
        raise refusal("Give either prompt or messages.", "prompt")
    check_packs(body.chat_template_kwargs or {}, "chat_template_kwargs")
    if body.continue_final_message and body.add_generation_prompt:
        raise refusal(
            "continue_final_message: cannot be true together with add_generation_prompt.",
            "continue_final_message",
        )


def _list(names: str | list[str] | None) -> list[str]:
    if names is None:
        return []
    return [names] if isinstance(names, str) else names
