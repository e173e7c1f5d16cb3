"""The page of the other endpoints knows every field of their bodies, and no others."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from stretto.roles.gateway import anthropic_bodies, responses_bodies, sglang_bodies, utilities

PAGE = Path(utilities.__file__).with_name("FIELDS_OTHERS.md").read_text()


def told(section: str) -> set[str]:
    """Fields in the first cells of a section's tables."""
    (text,) = (part for part in PAGE.split("\n## ")[1:] if part.startswith(section))
    cells = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    return {field for cell in cells for field in re.findall(r"`(\w+)`", cell)}


@pytest.mark.parametrize(
    ("section", "kinds"),
    [
        ("`/v1/responses`", [responses_bodies.ResponsesBody]),
        ("`/v1/messages`", [anthropic_bodies.MessagesBody]),
        ("`/generate`", [sglang_bodies.GenerateBody, sglang_bodies.Sampling]),
    ],
)
def test_the_table_has_the_fields_of_the_body(section: str, kinds: list[type[msgspec.Struct]]) -> None:
    assert told(section) == {field for kind in kinds for field in kind.__struct_fields__}


def test_the_small_bodies_are_told_too() -> None:
    (text,) = (part for part in PAGE.split("\n## ")[1:] if part.startswith("`/tokenize`"))
    kinds = (utilities.TokenizeBody, utilities.DetokenizeBody, utilities.AbortBody)
    assert {field for kind in kinds for field in kind.__struct_fields__} <= set(re.findall(r"`(\w+)`", text))
