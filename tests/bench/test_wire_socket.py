import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stretto.bench.answer import Answer, Usage
from stretto.bench.wire_socket import SocketWire
from stretto.roles.client.address import parse

Ask = Callable[..., list[Answer]]
"""From (frames, *bodies) to the answers."""


@pytest.fixture
def ask(tmp_path: Path, socket_server: Callable[..., Any]) -> Ask:
    async def run(frames: Any, *bodies: dict[str, Any]) -> list[Answer]:
        async with socket_server(tmp_path, frames) as address:
            wire = SocketWire(address)
            answers = await asyncio.gather(*(wire.ask(body) for body in bodies))
            await wire.close()
            return answers

    return lambda *args: asyncio.run(run(*args))


def well(id: str, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for token in request["prompt"]:
        yield {"type": "delta", "id": id, "index": 0, "text": "", "token_ids": [token]}
    usage = {"prompt_tokens": 9, "completion_tokens": len(request["prompt"])}
    yield {"type": "done", "id": id, "finish_reason": "length", "usage": usage}


def test_many_requests_share_a_socket(ask: Ask) -> None:
    one, two = ask(well, {"prompt": [1, 2]}, {"prompt": [3]})
    assert (one.token_ids, one.usage, one.error) == ([1, 2], Usage(9, 2), "")
    assert (two.token_ids, two.usage, two.error) == ([3], Usage(9, 1), "")
    assert one.sent < one.pieces[0] <= one.pieces[1] <= one.ended


def refused(id: str, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"type": "error", "id": id, "status": 400, "error": {"message": "too long"}}


def test_a_refusal_is_told_with_the_servers_words(ask: Ask) -> None:
    assert [answer.error for answer in ask(refused, {}, {})] == ["too long"] * 2


def lost(id: str, request: dict[str, Any]) -> Iterator[dict[str, Any] | None]:
    yield {"type": "delta", "id": id, "text": "a"}
    if id == "2":
        yield None


def test_a_lost_socket_fails_all_its_requests(ask: Ask) -> None:
    answers = ask(lost, {}, {})
    assert [answer.error for answer in answers] == ["the server closed the connection"] * 2
    assert all(answer.ended > answer.sent for answer in answers)


def test_a_server_without_the_socket_fails_every_request(
    tmp_path: Path, http_server: Callable[..., Any]
) -> None:
    async def run() -> list[Answer]:
        async with http_server(tmp_path, b"") as (address, _):
            wire = SocketWire(address)
            return [await wire.ask({}), await wire.ask({})]

    async def none() -> Answer:
        return await SocketWire(parse(uds=str(tmp_path / "none.sock"))).ask({})

    answers = [*asyncio.run(run()), asyncio.run(none())]
    assert all(answer.error.startswith("cannot connect to unix:") for answer in answers)
