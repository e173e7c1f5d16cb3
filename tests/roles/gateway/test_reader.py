"""Bytes to structs, and bytes that are none."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest

from stretto.roles.gateway.faults import Refused
from stretto.roles.gateway.reader import Reader


class Button(msgspec.Struct, tag_field="kind", tag="button", forbid_unknown_fields=True):
    holes: int


class Zip(msgspec.Struct, tag_field="kind", tag="zip", forbid_unknown_fields=True):
    length: int


class Shirt(msgspec.Struct, forbid_unknown_fields=True):
    size: int = 1
    closing: str | list[Button | Zip] | Button | Zip | None = None
    label: dict[str, Any] | None = None
    fit: Literal["slim", "wide"] | None = None


strict, lenient = Reader(Shirt), Reader(Shirt, lenient=True)


@pytest.mark.parametrize("reader", [strict, lenient])
def test_a_body_is_decoded(reader: Reader[Shirt]) -> None:
    data = b'{"size": 2, "closing": [{"kind": "zip", "length": 5}], "label": {"a": {"b": 1}}}'
    assert reader.read(data) == Shirt(2, [Zip(5)], {"a": {"b": 1}})


@pytest.mark.parametrize("reader", [strict, lenient])
@pytest.mark.parametrize(
    ("data", "param"),
    [
        (b'{"size":"x"}', "size"),
        (b'{"closing":[{"kind":"zip"}]}', "closing[0].length"),
        (b'{"closing":[{"kind":"knot"}]}', "closing[0].kind"),
        (b'{"closing":[5]}', "closing[0]"),
        (b"5", None),
        (b"{", None),
        (b"[" * 100_000, None),
    ],
)
def test_what_does_not_decode_is_refused_by_name(
    reader: Reader[Shirt], data: bytes, param: str | None
) -> None:
    with pytest.raises(Refused) as refused:
        reader.read(data)
    assert (refused.value.fault.status, refused.value.fault.param) == (400, param)


@pytest.mark.parametrize("reader", [strict, lenient])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"fit":"tight"}', """fit: Expected "slim" or "wide", got 'tight'"""),
        (b'{"closing":{"kind":"knot"}}', """closing.kind: Expected "button" or "zip", got 'knot'"""),
        (b'{"closing":[{"kind":"knot"}]}', """closing[0].kind: Expected "button" or "zip", got 'knot'"""),
    ],
)
def test_what_a_field_may_be_is_said(reader: Reader[Shirt], data: bytes, message: str) -> None:
    with pytest.raises(Refused) as refused:
        reader.read(data)
    assert refused.value.fault.message == message


UNKNOWN = [
    (b'{"sice": 2, "size": 3}', "sice", Shirt(3)),
    (b'{"closing": {"kind": "button", "holes": 4, "color": 1}}', "closing.color", Shirt(1, Button(4))),
    (b'{"closing": [{"kind": "zip", "length": 5, "x": 1}]}', "closing[0].x", Shirt(1, [Zip(5)])),
]


@pytest.mark.parametrize(("data", "param", "shirt"), UNKNOWN)
def test_unknown_fields_are_refused_or_left_out(data: bytes, param: str, shirt: Shirt) -> None:
    with pytest.raises(Refused) as refused:
        strict.read(data)
    assert refused.value.fault.param == param
    assert refused.value.fault.message.endswith("or start the server with --allow-unknown-fields.")
    assert lenient.read(data) == shirt


@pytest.mark.parametrize("reader", [strict, lenient])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            b'{"size":NaN}',
            "invalid character (byte 8). NaN and Infinity are not JSON.",
        ),
        (
            b'{"size":-Infinity}',
            "invalid character (byte 9). NaN and Infinity are not JSON.",
        ),
        (b'{"closing":"\\uD83D"}', "Input data was truncated. Half a surrogate pair is not JSON."),
        (b'{"closing":"\\ud83d\\ude00', "Input data was truncated."),
        (b'{"closing":"NaN', "Input data was truncated."),
        (b'{"closing":"NaN",}', "trailing comma in object (byte 17)."),
    ],
)
def test_what_is_no_json_is_told_and_only_that(reader: Reader[Shirt], data: bytes, message: str) -> None:
    for body in (data, msgspec.Raw(data)):
        with pytest.raises(Refused) as refused:
            reader.read(body)
        assert refused.value.fault.message == f"This is not valid JSON: {message}"
