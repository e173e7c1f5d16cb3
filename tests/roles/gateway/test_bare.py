"""Answers that no application makes."""

from __future__ import annotations

import socket
from collections.abc import Callable

import httpx
import pytest

from stretto.roles.gateway.bare import bare_answer
from stretto.roles.messages import Fault
from stretto.tests.roles.gateway.house import PATIENCE, House

PAGE, STRANGER = "http://localhost:3000", "https://evil.example.com"
FAULT = Fault(431, "Too much.")


def heads(answer: bytes) -> httpx.Headers:
    """Those of an answer, whose body must be as long as they say."""
    head, _, body = answer.partition(b"\r\n\r\n")
    headers = httpx.Headers([tuple(line.split(b": ", 1)) for line in head.split(b"\r\n")[1:]])  # type: ignore[misc]
    assert headers["content-length"] == str(len(body))
    return headers


def test_it_is_an_error_like_any_other_and_the_last_on_its_connection() -> None:
    answer = bare_answer(FAULT, [], [])
    assert answer.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
    assert answer.endswith(
        b'{"error":{"message":"Too much.","type":"invalid_request_error","param":null,"code":null}}'
    )
    headers = heads(answer)
    assert (headers["connection"], headers["content-type"]) == ("close", "application/json")
    assert headers["x-request-id"].startswith("req-")
    assert "access-control-allow-origin" not in headers


def test_it_says_when_to_come_again() -> None:
    assert heads(bare_answer(Fault(503, "Too many.", retry_after=7), [], []))["retry-after"] == "7"
    assert "retry-after" not in heads(bare_answer(FAULT, [], []))


@pytest.mark.parametrize(
    ("allowed", "origin", "told"),
    [
        ([PAGE], PAGE, PAGE),
        ([PAGE], STRANGER, None),
        ([PAGE], None, None),
        ([], PAGE, None),
        (["*"], STRANGER, "*"),
        (["*"], None, "*"),
    ],
)
def test_a_page_may_read_it_if_it_may_read_the_others(
    allowed: list[str], origin: str | None, told: str | None
) -> None:
    asked = [] if origin is None else [(b"origin", origin.encode())]
    headers = heads(bare_answer(FAULT, asked, allowed))
    assert headers.get("access-control-allow-origin") == told
    assert headers.get("access-control-expose-headers") == (
        told and "retry-after, x-request-id, x-should-retry"
    )


def answered(house: House, head: bytes) -> bytes:
    """What comes back before the connection is closed."""
    with socket.create_connection(house.listener.getsockname(), PATIENCE) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nhost: x\r\norigin: " + PAGE.encode() + b"\r\na: b\r\n" + head)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def test_the_server_gives_it_to_a_page_that_may_read_it(build: Callable[..., House]) -> None:
    house = build(allowed_origins=PAGE, idle_seconds=0.05)
    for head, status in [
        (b"x: " + b"y" * (65 << 10), 431),
        (b"no header\r\n\r\n", 400),
        (b"half: a he", 408),
    ]:
        answer = answered(house, head)
        assert answer.startswith(b"HTTP/1.1 %d " % status)
        assert heads(answer)["access-control-allow-origin"] == PAGE
