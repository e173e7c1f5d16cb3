"""The types say what is supported."""

from __future__ import annotations

import msgspec
import pytest

from stretto.roles.gateway import bodies


@pytest.mark.parametrize("kind", [bodies.ChatBody, bodies.TextBody, bodies.Message])
def test_single_supported_values_are_of_fields_that_exist(kind: type[bodies.Body]) -> None:
    fields = {field.name for field in msgspec.structs.fields(kind)}
    assert set(kind.only) <= fields


@pytest.mark.parametrize("kind", [bodies.ChatBody, bodies.TextBody])
def test_every_field_but_the_prompt_is_optional(kind: type[bodies.Body]) -> None:
    required = [field.name for field in msgspec.structs.fields(kind) if field.required]
    assert required in (["messages"], ["prompt"])


def test_a_schema_can_be_made_of_them() -> None:
    schema = msgspec.json.schema(bodies.ChatBody)["$defs"]["ChatBody"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["temperature"]["anyOf"][0] == {"type": "number", "minimum": 0, "maximum": 2}
