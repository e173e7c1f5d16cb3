"""Frames, byte by byte where it matters; `test_websocket` sees them in use."""

from __future__ import annotations

import pytest

from stretto.roles.gateway import frames
from stretto.roles.gateway.job import Job
from stretto.roles.messages import Fault, SamplingParams

JOB = Job(params=SamplingParams(), prompts=("Hi",), stream=True)


def test_a_generate_keeps_its_request_unread() -> None:
    frame = frames.decode('{"type": "generate", "id": "a", "request": {"x": [1]}}')
    assert isinstance(frame, frames.Generate)
    assert (frame.id, bytes(frame.request)) == ("a", b'{"x": [1]}')


def test_a_cancel_is_an_id() -> None:
    assert frames.decode('{"type": "cancel", "id": "a"}') == frames.Cancel("a")


@pytest.mark.parametrize(
    ("text", "id"),
    [
        ('{"type": "cancel", "id": "a", "why": 1}', "a"),
        ('{"type": "cancel", "id": 5}', None),
        ('{"type": "cancel"', None),
        ("[" * 100_000, None),
    ],
)
def test_an_objection_names_the_request_if_it_can(text: str, id: str | None) -> None:
    with pytest.raises(frames.Objection) as caught:
        frames.decode(text)
    assert (caught.value.id, caught.value.fault.status) == (id, 400)


def test_an_unknown_frame_is_told_which_there_are() -> None:
    with pytest.raises(frames.Objection) as caught:
        frames.decode('{"type": "stop", "id": "a"}')
    assert caught.value.fault.message == """type: Expected "generate" or "resume" or "cancel", got 'stop'"""


def test_a_failed_request_ends_in_an_error() -> None:
    assert frames.error("a", Fault(503, "gone", "server_error")) == {
        "type": "error",
        "id": "a",
        "status": 503,
        "error": {"message": "gone", "type": "server_error", "param": None, "code": None},
    }


def test_a_number_that_is_not_json_is_told() -> None:
    with pytest.raises(frames.Objection, match=r"\(byte 10\)\. NaN and Infinity are not JSON\.$"):
        frames.decode('{"ééa": NaN}')
