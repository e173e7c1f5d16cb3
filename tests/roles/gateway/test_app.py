"""Routing, keys, and errors that are everywhere the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stretto.roles import messages as m
from stretto.tests.roles.gateway.house import House


def error_of(answer: Any) -> Any:
    body = answer.json()
    assert body.keys() == {"error"}
    assert body["error"].keys() == {"message", "type", "param", "code"}
    return body["error"]


@pytest.mark.parametrize("path", ["/nothing", "/v1/nothing", "/v1/chat/completions/", "/v1"])
def test_an_unknown_path_is_404(house: House, path: str) -> None:
    answer = house.http.get(path)
    assert answer.status_code == 404
    assert path in error_of(answer)["message"]


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/chat/completions", "/v1/chat/completions"),
        ("/v1/v1/models", "/v1/models"),
        ("/v1/tokenize", "/tokenize"),
        ("/health/", "/health"),
    ],
)
def test_a_path_that_is_nearly_right_is_told_the_right_one(house: House, path: str, meant: str) -> None:
    assert error_of(house.http.get(path))["message"] == f"There is nothing at {path}. Did you mean {meant}?"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/chat/completions", "POST"),
        ("PUT", "/v1/completions", "POST"),
        ("POST", "/health", "GET, HEAD"),
    ],
)
def test_a_wrong_method_is_405(house: House, method: str, path: str, allowed: str) -> None:
    answer = house.http.request(method, path)
    assert answer.status_code == 405
    assert set(answer.headers["allow"].split(", ")) == set(allowed.split(", "))
    assert method in error_of(answer)["message"]


@pytest.mark.parametrize(
    "value",
    ["", "secret", "Bearer", "Bearer wrong", "Bearer secret2", "Basic secret", "Bearer s\xe9cret"],
)
def test_a_wrong_key_is_401(build: Callable[..., House], value: str) -> None:
    house = build(api_key="secret")
    headers = {b"authorization": value.encode("latin-1")}
    for method, path in [("POST", "/v1/completions"), ("GET", "/v1/models"), ("GET", "/nothing")]:
        answer = house.http.request(method, path, headers=headers)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert error_of(answer)["code"] == "invalid_api_key"
    assert house.back.submits.empty()


def test_the_right_key_opens_and_open_paths_need_none(build: Callable[..., House]) -> None:
    house = build(api_key="secret")
    assert house.chat().status_code == 200
    assert house.http.get("/v1/models", headers={"authorization": "bearer secret"}).status_code == 200
    for path in ("/", "/metrics", "/version"):
        assert house.http.get(path, headers={"authorization": ""}).status_code == 200
    assert house.http.get("/health", headers={"authorization": ""}).status_code == 503


def test_a_bug_of_ours_is_500_and_the_next_request_works(house: House) -> None:
    def stumble(submit: m.Submit) -> list[m.ToGateway]:
        raise RuntimeError("planted")

    house.back.script = stumble
    answer = house.chat()
    assert answer.status_code == 500
    assert error_of(answer)["type"] == "server_error"
    assert "planted" not in answer.text
    house.reset()
    assert house.chat().status_code == 200
