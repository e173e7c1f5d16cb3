"""The small GET endpoints."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from stretto import __version__
from stretto.shm.board import State
from stretto.tests.roles.gateway.house import MODEL, NAMES, House

PROBES = [("GET", "/health"), ("GET", "/ping"), ("POST", "/ping")]


def test_the_model_is_listed_and_found_by_its_id(house: House) -> None:
    listing = house.http.get("/v1/models").json()
    (model,) = listing["data"]
    assert listing["object"] == "list"
    assert (model["id"], model["object"], model["max_model_len"]) == (MODEL, "model", 2048)
    assert house.http.get(f"/v1/models/{MODEL}").json() == model
    assert house.http.get(f"/v1/models/{MODEL.replace('/', '%2F')}").json() == model


def test_another_model_is_not_found(house: House) -> None:
    answer = house.http.get("/v1/models/huge")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")


def test_health_is_read_from_the_board(house: House) -> None:
    for name in NAMES:
        house.board.set_state(name, State.READY)
        house.board.beat(name, time.monotonic())
    assert [house.http.request(*asked).status_code for asked in PROBES] == [200] * 3
    house.board.set_state("scheduler.0", State.BACKOFF)
    answers = [house.http.request(*asked) for asked in PROBES]
    assert [(answer.status_code, answer.json()["missing"]) for answer in answers] == [
        (503, ["scheduler.0"])
    ] * 3


def test_the_load_is_the_requests_that_have_not_ended(house: House) -> None:
    house.meter.set("requests_live", 3)
    assert house.http.get("/load").json() == {"server_load": 3}
    house.meter.set("requests_live", 0)


@pytest.mark.parametrize("path", ["/get_model_info", "/model_info"])
def test_sglangs_clients_learn_the_models_name(house: House, path: str) -> None:
    told = {"model_path": MODEL, "tokenizer_path": MODEL, "is_generation": True}
    assert house.http.get(path).json() == told


@pytest.mark.parametrize(("path", "status"), [("/ping", 503), ("/load", 200), ("/model_info", 401)])
def test_probes_need_no_key(build: Callable[..., House], path: str, status: int) -> None:
    assert build(api_key="secret").http.get(path, headers={"authorization": ""}).status_code == status


def test_metrics_are_prometheus_text(house: House) -> None:
    house.chat()
    answer = house.http.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "# TYPE stretto_requests_total counter" in answer.text
    assert "# TYPE vllm:num_requests_running gauge" in answer.text
    accept = {"accept": "application/openmetrics-text; version=1.0.0"}
    assert "\nvllm:num_requests_running{" in house.http.get("/metrics", headers=accept).text


@pytest.mark.parametrize("path", ["/version", "/"])
def test_the_version_is_told(house: House, path: str) -> None:
    assert __version__ in house.http.get(path).text


def test_a_plain_get_of_the_websocket_is_told_to_upgrade(house: House) -> None:
    answer = house.http.get("/v1/stream")
    assert (answer.status_code, answer.headers["upgrade"]) == (426, "websocket")
