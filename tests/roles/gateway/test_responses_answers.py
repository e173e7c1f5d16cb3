"""Response objects and their events, without a server."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from stretto.roles import messages as m
from stretto.roles.gateway import responses_bodies as bodies
from stretto.roles.gateway.responses_answers import ResponseAnswer
from stretto.tests.roles.gateway.house import ids


def answer(**fields: Any) -> ResponseAnswer:
    body = bodies.ResponsesBody(input="Hi", **fields)
    return ResponseAnswer("resp_1", body, bodies.job(body, "resp_1", []), "tiny")


def end(reason: m.FinishReason, fault: m.Fault | None = None) -> m.Event:
    return m.Event(1, 0, "a", ids(4), reason, None, m.Usage(5, 1, 3), fault)


def types(events: list[bytes]) -> list[str]:
    return [orjson.loads(event.split(b"data: ")[1])["type"] for event in events]


def test_a_fresh_response_is_queued_and_empty() -> None:
    fresh = answer(background=True).object()
    assert (fresh["id"], fresh["status"], fresh["output"], fresh["usage"]) == ("resp_1", "queued", [], None)


@pytest.mark.parametrize(
    ("reason", "status", "item", "last"),
    [
        ("stop", "completed", "completed", "response.completed"),
        ("length", "incomplete", "incomplete", "response.incomplete"),
        ("abort", "cancelled", "incomplete", "response.incomplete"),
    ],
)
def test_an_end_has_a_status_and_an_event(reason: m.FinishReason, status: str, item: str, last: str) -> None:
    ended = answer()
    assert types(ended.next_events(end(reason)))[-1] == last
    shown = ended.object()
    assert (shown["status"], shown["output"][0]["status"]) == (status, item)
    assert (shown["completed_at"] is not None) == (status == "completed")


@pytest.mark.parametrize(
    ("status", "code"), [(400, "invalid_prompt"), (429, "rate_limit_exceeded"), (503, "server_error")]
)
def test_a_failure_is_the_last_event(status: int, code: str) -> None:
    failed = answer()
    assert types(failed.next_events(end("error", m.Fault(status, "no")))) == [
        "response.output_text.delta",
        "response.failed",
    ]
    assert failed.object()["error"] == {"code": code, "message": "no"}


def test_events_are_numbered_through() -> None:
    numbered = answer()
    events = numbered.first_events() + numbered.next_events(end("stop"))
    numbers = [orjson.loads(event.split(b"data: ")[1])["sequence_number"] for event in events]
    assert numbers == list(range(9))
