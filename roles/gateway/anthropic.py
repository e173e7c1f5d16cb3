"""Anthropic's Messages API: `/v1/messages` and `/v1/messages/count_tokens`."""

from __future__ import annotations

from typing import Any

from starlette.routing import BaseRoute, Route

from stretto.roles import messages as m
from stretto.roles.gateway import anthropic_bodies as bodies
from stretto.roles.gateway import http
from stretto.roles.gateway.anthropic_answers import MessageAnswer, error_json
from stretto.roles.gateway.door import Door
from stretto.roles.gateway.faults import Refused
from stretto.roles.gateway.parts import Parts
from stretto.roles.gateway.posts import Post
from stretto.roles.gateway.reader import Reader
from stretto.roles.gateway.stream import HungUp, Stream, gather
from stretto.roles.gateway.submitting import speak, submitted


def routes(parts: Parts) -> list[BaseRoute]:
    """Both."""
    config, messages = parts.config, Messages(parts)
    reader = Reader(bodies.CountBody, config.allow_unknown_fields)
    count = Post(reader, messages.count, config.max_body_bytes, error_json)
    return [
        Route("/v1/messages", messages, methods=["POST"]),
        Route("/v1/messages/count_tokens", count, methods=["POST"]),
    ]


class Messages:
    """An ASGI application: `/v1/messages`."""

    def __init__(self, parts: Parts) -> None:
        config = parts.config
        self._door: Door = parts.door
        self._model, self._max_body_bytes = config.served_model_name, config.max_body_bytes
        self._reader = Reader(bodies.MessagesBody, config.allow_unknown_fields)

    async def __call__(self, scope: http.Scope, receive: http.Receive, send: http.Send) -> None:
        try:
            body = self._reader.read(await http.read_body(scope, receive, self._max_body_bytes))
            bodies.check(body, self._model)
            async with submitted(self._door, [bodies.job(body)], scope, receive) as (_, (stream,)):
                await (speak if body.stream else _whole)(stream, MessageAnswer(self._model), send)
        except Refused as refused:
            await http.refuse(send, receive, refused.fault, error_json)
        except HungUp:
            return

    async def count(self, body: bodies.CountBody) -> dict[str, Any]:
        """Tokens of a conversation. Raises `Refused`."""
        bodies.check(body, self._model)
        continues = bodies.continues(body)
        reply = await self._door.ask(
            lambda uid, gateway: m.Tokenize(
                uid,
                gateway,
                messages=bodies.conversation(body),
                add_generation_prompt=not continues,
                continue_final_message=continues,
            )
        )
        assert isinstance(reply, m.Tokenized)
        return {"input_tokens": len(reply.token_ids)}


async def _whole(stream: Stream, answer: MessageAnswer, send: http.Send) -> None:
    (event,) = (await gather(stream)).values()
    await http.answer(send, 200, answer.whole(event))
