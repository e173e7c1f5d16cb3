"""Errors in OpenAI's terms."""

from __future__ import annotations

from typing import Any

import pytest

from stretto.roles.client.errors import ConnectionFailed, StrettoError, from_object


def test_an_error_told_of_a_place_keeps_its_terms() -> None:
    error = StrettoError("no", status=404, type="t", code="c", param="p").at("prompt 3")
    assert (str(error), error.status, error.type, error.code, error.param) == (
        "prompt 3: no",
        404,
        "t",
        "c",
        "p",
    )


@pytest.mark.parametrize("fields", [None, "no", [], {}])
def test_what_is_no_error_object_falls_back(fields: Any) -> None:
    error = from_object(fields, 502, "the server said 502")
    assert (error.message, error.status, error.type) == ("the server said 502", 502, "server_error")


def test_a_failed_connection_is_told_from_a_refusal() -> None:
    error = ConnectionFailed("gone", "connection_lost")
    assert isinstance(error, StrettoError)
    assert (error.type, error.code, error.status) == ("connection_error", "connection_lost", None)
