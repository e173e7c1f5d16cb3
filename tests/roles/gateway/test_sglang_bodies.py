"""The types say what is supported."""

from __future__ import annotations

import msgspec
import pytest

from stretto.roles.gateway import sglang_bodies as bodies


@pytest.mark.parametrize("kind", [bodies.GenerateBody, bodies.Sampling])
def test_limited_fields_exist_and_may_be_null(kind: type[bodies.GenerateBody]) -> None:
    assert set(kind.only) <= set(kind.__struct_fields__)
    assert all(None in allowed for allowed in kind.only.values())


@pytest.mark.parametrize("kind", [bodies.GenerateBody, bodies.Sampling])
def test_every_field_is_optional(kind: type[bodies.GenerateBody]) -> None:
    assert not any(field.required for field in msgspec.structs.fields(kind))
