"""The server: sockets of both kinds, what is not HTTP, the date, the end."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx
import pytest

from stretto.roles import messages as m
from stretto.tests.roles.gateway.house import PATIENCE, House, ids, silence


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


def raw(house: House, data: bytes) -> bytes:
    """What the server answers to these bytes before it closes."""
    with socket.create_connection(house.listener.getsockname(), PATIENCE) as connection:
        connection.sendall(data)
        return read_all(connection)


@pytest.mark.parametrize(
    "head",
    [
        b"X: " + b"y" * (65 << 10),
        b"X: " + b"y" * (65 << 10) + b"\r\n\r\n",
        b"".join(b"X%d: y\r\n" % i for i in range(129)) + b"\r\n",
    ],
    ids=["endless", "whole", "many"],
)
def test_a_head_that_is_too_large_is_refused(house: House, head: bytes) -> None:
    answer = raw(house, b"GET / HTTP/1.1\r\nhost: x\r\n" + head)
    assert answer.startswith(b"HTTP/1.1 431 ")


def test_who_sends_half_a_head_or_half_a_body_is_not_waited_for(build: Callable[..., House]) -> None:
    house = build(idle_seconds=0.05)
    assert raw(house, b"GET / HT").startswith(b"HTTP/1.1 408 ")
    assert raw(house, b"") == b""
    half = b"POST /tokenize HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{"
    assert raw(house, half).startswith(b"HTTP/1.1 408 ")


def test_beyond_the_connections_it_takes_health_is_served_and_nothing_else(
    build: Callable[..., House],
) -> None:
    house = build(max_connections=1)
    with socket.create_connection(house.listener.getsockname()):
        for path, status in [("/version", 503), ("/health", 503), ("/metrics", 200)]:
            with httpx.Client(base_url=house.url, timeout=PATIENCE) as http:
                answer = http.get(path)
            assert (answer.status_code, "too_many" in answer.text) == (status, path == "/version")


def test_every_answer_has_a_name_of_its_own(house: House) -> None:
    names = [house.http.get(path).headers["x-request-id"] for path in ("/version", "/nothing", "/version")]
    assert len(set(names)) == 3
    assert b"\r\nx-request-id: req-" in raw(house, b"nonsense\r\n\r\n")


def test_a_client_that_never_reads_is_cut_and_its_request_cancelled(build: Callable[..., House]) -> None:
    house = build(slow_reader_seconds=0.001)
    house.back.script = silence
    body = b'{"prompt": "Hi", "stream": true}'
    with socket.create_connection(house.listener.getsockname()) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
        connection.sendall(head + body)
        uid, index = house.submitted().uid, 0
        while house.back.cancels.empty():
            house.send(m.Event(uid, index, "x" * 1_000_000, ids(1), offset=index * 1_000_000))
            house.call(house.door.tick)
            index += 1
        assert house.cancelled() == uid
    assert house.meter.value("slow_readers_total") == 1
