"""Schemas learn what the source says of fields."""

from __future__ import annotations

from typing import Any

import msgspec

from stretto.roles.gateway import bodies
from stretto.roles.gateway.fine_print import refine


def chat() -> Any:
    schema = msgspec.json.schema(bodies.ChatBody)["$defs"]["ChatBody"]
    refine("ChatBody", schema)
    return schema["properties"]


def test_the_text_under_a_field_describes_it_inherited_or_own() -> None:
    assert chat()["timeout"]["description"] == "Seconds."
    assert chat()["max_completion_tokens"]["description"] == "The newer name of `max_tokens`."
    assert "description" not in chat()["seed"]


def test_a_field_with_few_values_lists_them() -> None:
    assert chat()["store"] == {"enum": [None, False], "default": None}
    assert chat()["no_stop_trim"] == {"enum": [None, False], "default": None}


def test_the_type_stays() -> None:
    assert chat()["timeout"]["anyOf"][0]["exclusiveMinimum"] == 0
