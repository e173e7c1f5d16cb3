"""The table of fields is complete, true to the types, and knows every parameter of OpenAI's client."""

from __future__ import annotations

import re
import typing
from pathlib import Path

import msgspec
import pytest
from openai.types import completion_create_params as openai_text
from openai.types.chat import completion_create_params as openai_chat

from stretto.roles.gateway import bodies, intake
from stretto.roles.gateway.faults import Refused

PAGE = Path(bodies.__file__).with_name("FIELDS.md").read_text()
ROW = re.compile(r"^\| `(\w+)` \| (both|chat|text) \|", re.MULTILINE)
BODIES = {"chat": bodies.ChatBody, "text": bodies.TextBody}


def table(api: str, page: str = PAGE) -> list[str]:
    """The fields that the table has for an API."""
    return [field for field, on in ROW.findall(page) if on in ("both", api)]


def fields(api: str) -> set[str]:
    return {field.name for field in msgspec.structs.fields(BODIES[api])}


@pytest.mark.parametrize("api", BODIES)
def test_every_field_has_its_row_and_every_row_its_field(api: str) -> None:
    assert sorted(table(api)) == sorted(fields(api))


@pytest.mark.parametrize(
    ("api", "params"),
    [
        ("chat", openai_chat.CompletionCreateParamsBase),
        ("text", openai_text.CompletionCreateParamsBase),
    ],
)
def test_every_parameter_of_openais_client_has_its_row(api: str, params: type) -> None:
    assert set(typing.get_type_hints(params)) <= set(table(api))


def test_every_field_of_a_message_is_told() -> None:
    told = set(re.findall(r"`(\w+)`", PAGE.partition("## Messages")[2]))
    assert {field.name for field in msgspec.structs.fields(bodies.Message)} <= told


@pytest.mark.parametrize("api", BODIES)
def test_what_the_table_refuses_is_refused(api: str) -> None:
    prompt = {"chat": '"messages": [{"role": "user", "content": "Hi"}]', "text": '"prompt": "Hi"'}[api]
    read = {"chat": intake.Intake("m").chat, "text": intake.Intake("m").text}[api]
    for field in table(api, PAGE.partition("## Refused")[2]):
        assert read(f'{{{prompt}, "{field}": null}}'.encode()) == read(f"{{{prompt}}}".encode())
        with pytest.raises(Refused) as caught:
            read(f'{{{prompt}, "{field}": [[5]]}}'.encode())
        assert caught.value.fault.param is not None
        assert caught.value.fault.param.startswith(field)


@pytest.mark.parametrize("api", BODIES)
def test_what_the_table_ignores_changes_nothing(api: str) -> None:
    prompt = {"chat": '"messages": [{"role": "user", "content": "Hi"}]', "text": '"prompt": "Hi"'}[api]
    read = {"chat": intake.Intake("m").chat, "text": intake.Intake("m").text}[api]
    samples = ["true", "5", '"auto"', '{"a": "b"}']
    page = PAGE.partition("## Accepted and ignored")[2].partition("## Refused")[0]
    for field in table(api, page):
        taken = 0
        for sample in samples:
            try:
                assert read(f'{{{prompt}, "{field}": {sample}}}'.encode()) == read(f"{{{prompt}}}".encode())
                taken += 1
            except Refused:
                pass
        assert taken, field
