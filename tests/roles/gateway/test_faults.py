"""Errors in OpenAI's words."""

from __future__ import annotations

import msgspec
import orjson

from stretto.roles.gateway.faults import UNKNOWN, error_json, refusal, undecodable


class _Inner(msgspec.Struct, forbid_unknown_fields=True):
    size: int


class _Outer(msgspec.Struct, forbid_unknown_fields=True):
    inner: list[_Inner]


def _fault_of(body: bytes) -> tuple[str | None, str]:
    try:
        msgspec.json.decode(body, type=_Outer)
    except msgspec.DecodeError as error:
        fault = undecodable(error).fault
        return fault.param, fault.message
    raise AssertionError("it decodes")


def test_an_error_has_openais_four_fields() -> None:
    fault = refusal("No.", "n", "no_n").fault
    assert orjson.loads(error_json(fault)) == {
        "error": {"message": "No.", "type": "invalid_request_error", "param": "n", "code": "no_n"}
    }


def test_the_field_to_blame_is_named_by_its_path() -> None:
    assert _fault_of(b'{"inner":[{"size":1},{"size":"x"}]}') == (
        "inner[1].size",
        "inner[1].size: Expected `int`, got `str`",
    )
    assert _fault_of(b'{"inner":[{}]}') == ("inner[0].size", "inner[0].size: this field is required.")
    assert _fault_of(b'{"inner":[{"size":1,"x":2}]}')[0] == "inner[0].x"
    assert _fault_of(b'{"x":2}') == ("x", f"x: {UNKNOWN}")


def test_a_body_that_is_no_object_blames_no_field() -> None:
    assert _fault_of(b"[]") == (None, "Expected `object`, got `array`")
    assert _fault_of(b"{")[0] is None
