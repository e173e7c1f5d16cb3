"""`/openapi.json`: an OpenAPI 3.1 document, made from the very structs that validate bodies."""

from __future__ import annotations

import asyncio
import functools
import re
from typing import Any

import msgspec
import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from stretto import __version__
from stretto.roles.gateway import docs, schemas, schemas_others
from stretto.roles.gateway.fine_print import refine
from stretto.roles.gateway.operations import Operation, operations
from stretto.roles.gateway.parts import Parts

_REF = "#/components/schemas/{name}"
_ERRORS = {
    400: "The request is wrong; the message says what and where.",
    401: "The API key is missing or wrong.",
    404: "There is no such thing here.",
    408: "The request took longer than it said it may.",
    413: "The body is too large.",
    429: "The server has more requests than it can take in.",
    500: "The server failed at this request.",
    503: "The server shuts down, or has too many connections; send it again later.",
}
_EVENT = {
    "type": "object",
    "properties": {"event": {"type": "string"}, "data": {"type": "string"}},
    "required": ["data"],
}
"""One server-sent event."""
_DESCRIPTION = (
    "One model, by the APIs of OpenAI, vLLM, SGLang and Anthropic. Unknown fields are refused by name, "
    "unless the server was started with `--allow-unknown-fields`."
)


def routes(parts: Parts) -> list[BaseRoute]:
    """The document, and the page that shows it; made, beside the loop, when first asked for."""
    model = parts.config.served_model_name

    @functools.cache
    def made() -> tuple[bytes, str]:
        whole = document(model)
        return orjson.dumps(whole), docs.page(whole)

    async def as_json(request: Request) -> Response:
        return Response((await asyncio.to_thread(made))[0], media_type="application/json")

    async def as_page(request: Request) -> Response:
        return Response((await asyncio.to_thread(made))[1], media_type="text/html")

    return [Route("/openapi.json", as_json), Route("/docs", as_page)]


def document(model: str) -> dict[str, Any]:
    """The whole document; `model` stands in the examples."""
    table = operations()
    bodies_and_answers = [kind for op in table for kind in (op.body, op.answer) if kind is not None]
    errors = [schemas.Error, schemas_others.AnthropicError]
    made, components = msgspec.json.schema_components([*bodies_and_answers, *errors], ref_template=_REF)
    schema_of = dict(zip(map(str, bodies_and_answers), made, strict=False))
    for name, schema in components.items():
        refine(name, schema)
    paths: dict[str, Any] = {}
    for op in table:
        paths.setdefault(op.path, {})[op.method.lower()] = _operation(op, schema_of, model)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Stretto", "version": __version__, "description": _DESCRIPTION},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }


def _operation(op: Operation, schema_of: dict[str, Any], model: str) -> dict[str, Any]:
    names = re.findall(r"\{(\w+)\}", op.path)
    parameters = [_parameter(name, "path", {"type": "string"}) for name in names]
    parameters += [_parameter(name, "query", schema) for name, schema in op.query]
    made: dict[str, Any] = {
        "operationId": re.sub(r"\W+", "_", f"{op.method.lower()}{op.path}").strip("_"),
        "tags": [op.tag],
        "summary": op.summary,
        "parameters": parameters,
        "responses": _responses(op, schema_of),
        "security": [] if op.open else _keys(op),
    }
    if op.body is not None:
        content = {"schema": schema_of[str(op.body)], "example": _example(op, model)}
        made["requestBody"] = {"required": True, "content": {"application/json": content}}
    return made


def _parameter(name: str, place: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "schema": schema}


def _keys(op: Operation) -> list[dict[str, list[str]]]:
    """The ways to show a key, where the server wants one."""
    return [{"bearer": []}, {"x-api-key": []}] if op.tag == "Anthropic" else [{"bearer": []}]


def _example(op: Operation, model: str) -> dict[str, Any]:
    named = {"model": model} if "model" in op.body.__struct_fields__ else {}
    return named | (op.example or {})


def _responses(op: Operation, schema_of: dict[str, Any]) -> dict[str, Any]:
    name = "AnthropicError" if op.tag == "Anthropic" else "Error"
    error = {"application/json": {"schema": {"$ref": _REF.format(name=name)}}}
    content: dict[str, Any] = {op.media: {"schema": {"type": "string"}}} if op.media else {}
    if op.answer is not None:
        content = {op.media: {"schema": schema_of[str(op.answer)]}}
    if op.stream:
        content["text/event-stream"] = {"schema": {**_EVENT, "description": op.stream}}
    responses: dict[str, Any] = {"200": {"description": op.summary, "content": content}}
    for status in _statuses(op):
        responses[str(status)] = {"description": _ERRORS[status], "content": error}
    match op.path:
        case "/health" | "/ping":
            responses["503"] = {"description": "Something is missing.", "content": content}
        case "/health_generate":
            responses["503"] = {"description": "No token came.", "content": error}
        case "/start_profile" | "/stop_profile":
            responses["409"] = {"description": "There is a recording already, or none.", "content": error}
        case "/v1/stream":
            del responses["200"]
            responses["426"] = {"description": "This is a WebSocket.", "content": error}
    return responses


def _statuses(op: Operation) -> list[int]:
    """Of the errors that an operation may end with."""
    if op.body is not None:
        return list(_ERRORS)
    return ([] if op.open else [401]) + ([400, 404] if "{" in op.path else [])
