"""The server: sockets of both kinds, what is not HTTP, the date, the end."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from pathlib import Path

from stretto.tests.roles.gateway.house import PATIENCE, House, silence


def read_all(sock: socket.socket) -> bytes:
    data = b""
    while more := sock.recv(1 << 16):
        data += more
    return data


def test_it_serves_on_a_unix_socket(build: Callable[..., House], tmp_path: Path) -> None:
    house = build(uds=str(tmp_path / "http.sock"))
    assert house.chat().status_code == 200
    assert house.chat(stream=True).text.endswith("data: [DONE]\n\n")


def test_what_is_not_http_is_told_so_in_the_same_format(house: House) -> None:
    with socket.create_connection(house.listener.getsockname(), PATIENCE) as sock:
        sock.sendall(b"SING a song\r\n\r\n")
        head, _, body = read_all(sock).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["error"]["type"] == "invalid_request_error"


def test_answers_are_dated_once(house: House) -> None:
    answer = house.http.get("/version")
    assert len(answer.headers.get_list("date")) == 1
    assert parsedate_to_datetime(answer.headers["date"])
    assert "server" not in answer.headers


def test_closing_waits_for_nobody_beyond_the_timeout(build: Callable[..., House]) -> None:
    house = build()
    house.back.script = silence
    body = b'{"prompt": "Hi"}'
    with socket.create_connection(house.listener.getsockname(), PATIENCE) as sock:
        head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        sock.sendall(head.encode() + body)
        uid = house.submitted().uid
        house.close()
        assert read_all(sock) == b""
    assert house.cancelled() == uid
