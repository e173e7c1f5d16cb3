import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stretto.bench.answer import Answer, Usage
from stretto.bench.wire_http import HttpWire
from stretto.roles.client.address import parse

EVENTS = (
    b'data: {"choices":[{"index":0,"text":"Hi","token_ids":[5]}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1}}\n\ndata: [DONE]\n\n'
)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(EVENTS), EVENTS)
REFUSAL = b'{"error": {"message": "too long"}}'
REFUSED = b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\n\r\n%b" % (len(REFUSAL), REFUSAL)


Ask = Callable[..., tuple[list[Answer], Any]]
"""From (answer, times=1, **options of the wire) to the answers, and what the server has seen."""


@pytest.fixture
def ask(tmp_path: Path, http_server: Callable[..., Any]) -> Ask:
    async def run(answer: bytes, times: int = 1, **options: Any) -> tuple[list[Answer], Any]:
        async with http_server(tmp_path, answer) as (address, seen):
            wire = HttpWire(address, **options)
            answers = [await wire.ask({"prompt": "x"}) for _ in range(times)]
            await wire.close()
            return answers, seen

    return lambda *args, **options: asyncio.run(run(*args, **options))


def test_an_answer_is_timed_and_counted(ask: Ask) -> None:
    (answer,), seen = ask(CHUNKED)
    assert (answer.error, answer.token_ids, answer.usage) == ("", [5], Usage(3, 1))
    assert answer.sent < answer.pieces[0] <= answer.ended
    assert seen.bodies == [{"prompt": "x"}]
    assert seen.heads[0].startswith(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n")
    assert b"Authorization" not in seen.heads[0]


def test_the_key_is_sent_as_bearer_token(ask: Ask) -> None:
    _, seen = ask(CHUNKED, api_key="secret")
    assert b"\r\nAuthorization: Bearer secret\r\n" in seen.heads[0]


def test_connections_are_kept_alive(ask: Ask) -> None:
    answers, seen = ask(CHUNKED, times=3)
    assert [answer.error for answer in answers] == [""] * 3
    assert (seen.connections, len(seen.bodies)) == (1, 3)


def test_a_refusal_is_told_with_the_servers_words(ask: Ask) -> None:
    answers, seen = ask(REFUSED, times=2)
    assert [answer.error for answer in answers] == ["HTTP 400: too long"] * 2
    assert seen.connections == 1


def test_a_lost_connection_fails_its_request_and_not_the_next(ask: Ask) -> None:
    answers, seen = ask(b"", times=2)
    assert [answer.error for answer in answers] == ["the server closed the connection"] * 2
    assert seen.connections == 2
    assert all(answer.ended > answer.sent for answer in answers)


def test_an_answer_that_makes_no_sense_fails_its_request(ask: Ask) -> None:
    (nonsense,), _ = ask(b"nonsense\r\n\r\n")
    assert nonsense.error.startswith("the server's answer makes no sense: ")
    bad = b"data: {oops}\n\n"
    (nonsense,), _ = ask(HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(bad), bad))
    assert nonsense.error.startswith("the server's answer makes no sense: JSON is malformed")


def test_where_nothing_listens_every_request_fails(tmp_path: Path) -> None:
    answer = asyncio.run(HttpWire(parse(uds=str(tmp_path / "none.sock"))).ask({}))
    assert answer.error.startswith("cannot connect to unix:")
    assert answer.ended >= answer.sent
