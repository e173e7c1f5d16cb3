"""The document says what the server does, all of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

import pytest
from starlette.applications import Starlette

from stretto.roles.gateway.guard import Guard
from stretto.roles.gateway.openapi import document
from stretto.tests.roles.gateway.house import MODEL, House


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return document(MODEL)


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    """All objects inside."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from nodes(item)


def test_it_is_served_without_a_key(house: House, made: dict[str, Any]) -> None:
    answer = house.http.get("/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == made
    assert made["openapi"] == "3.1.0"


def test_it_lists_the_routes_and_no_others(house: House, made: dict[str, Any]) -> None:
    app = cast(Starlette, cast(Guard, house.server._config.app).app)
    served = {
        (re.sub(r":\w+\}", "}", route.path), method)  # type: ignore[attr-defined]
        for route in app.routes
        for method in getattr(route, "methods", None) or ()
        if method != "HEAD"
    }
    listed = {(path, method.upper()) for path, ops in made["paths"].items() for method in ops}
    assert listed == served


def test_every_reference_leads_somewhere(made: dict[str, Any]) -> None:
    references = {node["$ref"] for node in nodes(made) if "$ref" in node}
    assert references == {f"#/components/schemas/{name}" for name in made["components"]["schemas"]}


def test_no_two_structs_share_a_name(made: dict[str, Any]) -> None:
    assert [name for name in made["components"]["schemas"] if "." in name] == []


def test_every_operation_has_a_name_of_its_own(made: dict[str, Any]) -> None:
    names = [op["operationId"] for ops in made["paths"].values() for op in ops.values()]
    assert len(names) == len(set(names))


def test_fields_say_their_ranges_their_purpose_and_their_only_values(made: dict[str, Any]) -> None:
    schemas = made["components"]["schemas"]
    chat, body = schemas["ChatBody"], schemas["MessagesBody"]
    assert chat["properties"]["temperature"]["anyOf"][0] == {"type": "number", "minimum": 0, "maximum": 2}
    assert chat["properties"]["timeout"]["description"] == "Seconds."
    assert chat["properties"]["store"] == {"enum": [None, False], "default": None}
    assert (chat["additionalProperties"], chat["required"]) == (False, ["messages"])
    assert set(body["required"]) == {"model", "messages", "max_tokens"}


def test_keys_and_errors_are_those_of_the_api(made: dict[str, Any]) -> None:
    message, chat = made["paths"]["/v1/messages"]["post"], made["paths"]["/v1/chat/completions"]["post"]
    assert message["security"] == [{"bearer": []}, {"x-api-key": []}]
    assert chat["security"] == [{"bearer": []}]
    assert made["paths"]["/health"]["get"]["security"] == []

    def error_of(operation: dict[str, Any]) -> str:
        return str(operation["responses"]["400"]["content"]["application/json"]["schema"]["$ref"])

    assert error_of(message).endswith("/AnthropicError")
    assert error_of(chat).endswith("/Error")


def test_examples_name_the_model(made: dict[str, Any]) -> None:
    content = made["paths"]["/v1/completions"]["post"]["requestBody"]["content"]["application/json"]
    assert content["example"]["model"] == MODEL
