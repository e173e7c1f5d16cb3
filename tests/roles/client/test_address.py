"""What users type as a server's address."""

from __future__ import annotations

from typing import Any

import pytest

from stretto.roles.client.address import listens, parse


@pytest.mark.parametrize(
    ("url", "http", "websocket"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000", "ws://127.0.0.1:8000/v1/stream"),
        ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000", "ws://127.0.0.1:8000/v1/stream"),
        ("localhost:9", "http://localhost:9", "ws://localhost:9/v1/stream"),
        ("https://example.com/llm", "https://example.com/llm", "wss://example.com/llm/v1/stream"),
        ("ws://[::1]:80", "http://[::1]:80", "ws://[::1]:80/v1/stream"),
    ],
)
def test_a_url_names_both_protocols(url: str, http: str, websocket: str) -> None:
    address = parse(url)
    assert (address.http, address.websocket) == (http, websocket)


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://127.0.0.1:1", True),
        ("http://localhost", True),
        ("http://[::1]:1", True),
        ("http://example.com", False),
        ("http://10.0.0.1", False),
    ],
)
def test_no_proxy_comes_between_on_this_machine(url: str, local: bool) -> None:
    assert parse(url).is_local is local


@pytest.mark.parametrize("url", ["ftp://example.com", "http://", "", "localhost:99999", "localhost:0", "h:x"])
def test_what_names_no_server_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="not a server's address"):
        parse(url)


def test_a_socket_listens_or_does_not(server: Any, uds: str) -> None:
    assert listens(parse(uds=uds))
    assert not listens(parse(uds=uds + "x"))
    assert not listens(parse("http://127.0.0.1:1"))
