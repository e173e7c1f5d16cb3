"""Who may go where."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from stretto.roles.config import Config
from stretto.roles.gateway.guard import Guard
from stretto.roles.messages import Drain, Restart
from stretto.tests.roles.gateway.house import House

ADMIN = ["/start_profile", "/stop_profile", "/flush_cache", "/drain", "/restart/executor"]


def status(path: str, key: str = "", client: Any = ("10.0.0.1", 5), origin: str = "", **options: str) -> int:
    """What a request gets, 200 where it is let past."""
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"status": 200})

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"authorization", f"Bearer {key}".encode())] if key else []
    if origin:
        headers.append((b"origin", origin.encode()))
    scope = {"type": "http", "path": path, "headers": headers, "client": client}
    asyncio.run(Guard(app, Config(**options))(scope, None, send))  # type: ignore[arg-type]
    return int(sent[0]["status"])


@pytest.mark.parametrize("path", ADMIN)
def test_what_changes_the_server_wants_the_admin_key(path: str) -> None:
    both = {"api_key": "user", "admin_key": "boss"}
    assert [status(path, key, **both) for key in ("", "user", "boss")] == [401, 401, 200]
    assert [status(path, key, api_key="user") for key in ("", "user")] == [401, 200]
    assert [status(path, key, admin_key="boss") for key in ("", "boss")] == [401, 200]


@pytest.mark.parametrize("path", ADMIN)
@pytest.mark.parametrize(
    ("client", "expected"), [(("10.0.0.1", 5), 403), (("127.0.0.1", 5), 200), (("::1", 5), 200), (None, 200)]
)
def test_without_keys_it_wants_to_come_from_here(path: str, client: Any, expected: int) -> None:
    assert status(path, client=client) == expected


def test_without_keys_no_web_page_may_change_the_server() -> None:
    here = {"client": ("127.0.0.1", 5), "origin": "https://elsewhere.example"}
    assert status("/drain", **here) == 403
    assert status("/v1/models", **here) == 200
    assert status("/drain", "secret", **here, admin_key="secret") == 200


def test_the_api_wants_the_api_key_alone() -> None:
    assert [status("/v1/models", key, api_key="user", admin_key="boss") for key in ("", "boss", "user")] == [
        401,
        401,
        200,
    ]
    assert status("/v1/models", admin_key="boss") == 200
    assert status("/health", api_key="user") == 200


def test_orders_go_to_the_supervisor(build: Callable[..., House]) -> None:
    house = build(admin_key="boss")
    boss = {"authorization": "Bearer boss"}
    paths = ["/drain", "/restart/tokenizer", "/restart/tokenizer.1"]
    assert [house.http.post(path, headers=boss).status_code for path in paths] == [200] * 3
    orders = [house.orders.get_nowait() for _ in paths]
    assert orders == [Drain(), Restart("tokenizer"), Restart("tokenizer", 1)]
    for name in ("oracle", "tokenizer.7", "tokenizer."):
        assert house.http.post(f"/restart/{name}", headers=boss).status_code == 404
    assert house.orders.empty()
    assert house.http.post("/drain").status_code == 401
