"""The board in Prometheus' words."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from stretto import __version__
from stretto.roles.gateway.exposition import BoardCollector
from stretto.roles.metrics import METRICS, Meter
from stretto.shm.board import PID, RESTARTS, Board, State

NAMES = ["executor.0", "scheduler.0", "tokenizer.0", "tokenizer.1", "gateway.0"]


@pytest.fixture
def board() -> Iterator[Board]:
    fd = Board.create(NAMES)
    board = Board(fd)
    os.close(fd)
    yield board
    board.close()


def scrape(board: Board) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    registry = CollectorRegistry()
    registry.register(BoardCollector(board, "tiny"))
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {(s.name, tuple(s.labels.items())): s.value for family in families for s in family.samples}


def test_every_metric_of_every_role_there_is_exposed(board: Board) -> None:
    exposed = {name for name, _ in scrape(board)}
    for role in ("scheduler", "tokenizer", "gateway"):
        for metric in METRICS[role]:
            suffix = "_count" if metric.kind == "histogram" else ""
            assert f"stretto_{metric.name}{suffix}" in exposed


def test_counters_and_gauges_keep_their_values(board: Board) -> None:
    meter = Meter("scheduler", board.row("scheduler.0"))
    meter.add("steps_total", 41)
    meter.set("requests_running", 7)
    values = scrape(board)
    assert values["stretto_steps_total", ()] == 41
    assert values["stretto_requests_running", ()] == 7


def test_processes_of_one_role_are_told_apart(board: Board) -> None:
    Meter("tokenizer", board.row("tokenizer.1")).add("prompts_total", 3)
    values = scrape(board)
    assert values["stretto_prompts_total", (("process", "0"),)] == 0
    assert values["stretto_prompts_total", (("process", "1"),)] == 3


def test_histograms_are_cumulative(board: Board) -> None:
    meter = Meter("gateway", board.row("gateway.0"))
    for seconds in (0.004, 0.02, 0.02, 500.0):
        meter.observe("request_latency_seconds", seconds)
    values = scrape(board)
    name = "stretto_request_latency_seconds"
    bounds = ("0.005", "0.01", "0.025", "120.0", "+Inf")
    assert [values[f"{name}_bucket", (("le", le),)] for le in bounds] == [1, 1, 3, 3, 4]
    assert values[f"{name}_count", ()] == 4
    assert values[f"{name}_sum", ()] == pytest.approx(500.044)


def test_processes_are_up_or_not_with_their_restarts_and_memory(board: Board) -> None:
    board.set_state("executor.0", State.READY)
    board.row("executor.0")[PID] = os.getpid()
    board.row("executor.0")[RESTARTS] = 2
    values = scrape(board)
    executor, scheduler = (("process", "executor.0"),), (("process", "scheduler.0"),)
    assert (values["stretto_process_up", executor], values["stretto_process_up", scheduler]) == (1, 0)
    assert values["stretto_process_restarts_total", executor] == 2
    assert values["stretto_process_resident_memory_bytes", executor] > 1 << 20
    assert values["stretto_process_resident_memory_bytes", scheduler] == 0


def test_the_build_is_named(board: Board) -> None:
    (labels,) = (dict(labels) for name, labels in scrape(board) if name == "stretto_build_info")
    assert labels == {"version": __version__, "model": "tiny"}
