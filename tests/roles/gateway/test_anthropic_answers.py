"""Anthropic's words for ends, counts and errors."""

from __future__ import annotations

import orjson
import pytest

from stretto.roles import messages as m
from stretto.roles.gateway.anthropic_answers import MessageAnswer, error_json, stop_of, usage_object
from stretto.tests.roles.gateway.house import ids


@pytest.mark.parametrize(
    ("reason", "stop", "told", "sequence"),
    [
        ("stop", None, "end_turn", None),
        ("stop", 7, "end_turn", None),
        ("stop", "END", "stop_sequence", "END"),
        ("length", None, "max_tokens", None),
        ("abort", None, "pause_turn", None),
    ],
)
def test_every_end_has_its_word(
    reason: m.FinishReason, stop: str | int | None, told: str, sequence: str | None
) -> None:
    event = m.Event(1, 0, "", finish_reason=reason, stop_reason=stop)
    assert stop_of(event) == {"stop_reason": told, "stop_sequence": sequence}


def test_cached_tokens_are_counted_apart() -> None:
    assert usage_object(m.Usage(5, 2, 3)) == {
        "input_tokens": 2,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 3,
        "output_tokens": 2,
    }
    assert set(usage_object(None).values()) == {0}


def test_a_stream_begins_with_the_prompts_count_where_it_is_known() -> None:
    event = m.Event(1, 0, "a", ids(4), usage=m.Usage(5, 1, 3))
    start = orjson.loads(MessageAnswer("tiny").opening([event]).split(b"\n")[1].removeprefix(b"data: "))
    assert (start["message"]["usage"]["input_tokens"], start["message"]["model"]) == (2, "tiny")


def test_an_event_without_text_says_nothing() -> None:
    assert MessageAnswer("tiny").event(m.Event(1, 0, "", ids(4))) == b""


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (404, "not_found_error"),
        (405, "invalid_request_error"),
        (408, "timeout_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (503, "overloaded_error"),
    ],
)
def test_every_error_has_its_type(status: int, kind: str) -> None:
    body = orjson.loads(error_json(m.Fault(status, "no")))
    assert body == {"type": "error", "error": {"type": kind, "message": "no"}, "request_id": None}
