"""The frames, byte for byte."""

from __future__ import annotations

import json

import msgspec
import pytest

from stretto.roles.client.errors import StrettoError
from stretto.roles.client.frames import Delta, Done, Error, cancel, decode, failure, generate, resume


def test_frames_to_the_server() -> None:
    request = {"prompt": "h\u00e9", "temperature": 0.5, "stop": ("x",)}
    assert json.loads(generate("7", request)) == {
        "type": "generate",
        "id": "7",
        "request": {"prompt": "h\u00e9", "temperature": 0.5, "stop": ["x"]},
        "resumable": True,
    }
    assert json.loads(resume("7", request, "h", [2], [])) == {
        "type": "resume",
        "id": "7",
        "request": {"prompt": "h\u00e9", "temperature": 0.5, "stop": ["x"]},
        "stream": "h",
        "tokens": [2],
        "ends": [],
    }
    assert json.loads(cancel("7")) == {"type": "cancel", "id": "7"}


def test_frames_from_the_server() -> None:
    assert decode(b'{"type":"delta","id":"a","index":0,"text":"hi","later":1}') == Delta("a", "hi")
    done = decode(
        b'{"type":"done","id":"a","finish_reason":"stop","stop_reason":7,"usage":{"prompt_tokens":3,'
        b'"completion_tokens":2,"total_tokens":5,"prompt_tokens_details":{"cached_tokens":1}}}'
    )
    assert isinstance(done, Done)
    assert done.usage is not None
    assert (done.stop_reason, done.usage.total_tokens, done.usage.cached_tokens) == (7, 5, 1)


def test_an_error_frame_is_an_exception() -> None:
    frame = decode(
        b'{"type":"error","id":null,"error":{"message":"no","type":"t","param":"p","code":"c"},"status":404}'
    )
    assert isinstance(frame, Error)
    error = failure(frame)
    assert (str(error), error.type, error.param, error.code, error.status) == ("no", "t", "p", "c", 404)


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"type":"delta"}', b'{"type":"new","id":"a"}'])
def test_what_is_no_frame_is_an_error(data: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode(data)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), b"x"])
def test_what_json_cannot_carry_is_refused(value: object) -> None:
    with pytest.raises(StrettoError, match="JSON"):
        generate("1", {"x": value})
