"""Health tells the truth."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from stretto.roles.gateway.health import health
from stretto.shm.board import RESTARTS, Board, State

NAMES = ["executor.0", "scheduler.0"]


@pytest.fixture
def board() -> Iterator[Board]:
    """Everybody is ready and has a fresh heartbeat."""
    fd = Board.create(NAMES)
    board = Board(fd)
    os.close(fd)
    for name in NAMES:
        board.set_state(name, State.READY)
        board.beat(name, time.monotonic())
    yield board
    board.close()


def test_all_is_well(board: Board) -> None:
    board.row("executor.0")[RESTARTS] = 2
    status, body = health(board, 30)
    assert (status, body["status"]) == (200, "ok")
    assert body["roles"].keys() == set(NAMES)
    executor = body["roles"]["executor.0"]
    assert (executor["state"], executor["restarts"]) == ("ready", 2)
    assert 0 <= executor["heartbeat_age_seconds"] < 30


@pytest.mark.parametrize("state", [State.STARTING, State.BACKOFF, State.STOPPING, State.FATAL])
def test_a_role_that_is_not_ready_is_missing(board: Board, state: State) -> None:
    board.set_state("executor.0", state)
    status, body = health(board, 30)
    assert (status, body["status"], body["missing"]) == (503, "unavailable", ["executor.0"])
    assert body["roles"]["executor.0"]["state"] == state.name.lower()


@pytest.mark.parametrize("state", [State.DOWN, State.RETIRING])
def test_a_spare_place_and_who_leaves_it_are_not_missing(board: Board, state: State) -> None:
    board.set_state("executor.0", state)
    assert health(board, 30)[0] == 200


def test_a_server_that_drains_is_not_well(board: Board) -> None:
    board.set_draining()
    assert (health(board, 30)[0], health(board, 30)[1]["status"]) == (503, "draining")


def test_a_role_that_is_wedged_is_missing(board: Board) -> None:
    board.beat("scheduler.0", time.monotonic() - 31)
    assert health(board, 30)[1]["missing"] == ["scheduler.0"]


def test_a_role_that_never_gave_a_heartbeat_is_missing(board: Board) -> None:
    board.beat("scheduler.0", 0)
    status, body = health(board, 30)
    assert (status, body["missing"]) == (503, ["scheduler.0"])
    assert body["roles"]["scheduler.0"]["heartbeat_age_seconds"] is None
