"""What a dashboard made for vLLM finds."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from stretto.roles.gateway.vllm_metrics import ALIASES, VllmCollector
from stretto.roles.metrics import METRICS, Meter
from stretto.shm.board import Board

ENGINE = {"model_name": "tiny", "engine": "0"}


@pytest.fixture
def board() -> Iterator[Board]:
    fd = Board.create(["scheduler.0", "gateway.0", "gateway.1"])
    board = Board(fd)
    os.close(fd)
    yield board
    board.close()


def scrape(board: Board) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    registry = CollectorRegistry()
    registry.register(VllmCollector(board, "tiny", page_size=16))
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {
        (s.name.removeprefix("vllm:"), tuple(sorted(s.labels.items()))): s.value
        for family in families
        for s in family.samples
    }


def told(board: Board, name: str, **labels: str) -> float:
    return scrape(board)[name, tuple(sorted({**ENGINE, **labels}.items()))]


def test_each_alias_is_a_metric_of_its_kind() -> None:
    kinds = {(role, metric.name): metric.kind for role, metrics in METRICS.items() for metric in metrics}
    assert [kinds[alias.role, alias.metric] for alias in ALIASES] == [alias.kind for alias in ALIASES]


def test_the_schedulers_figures_have_vllms_names(board: Board) -> None:
    meter = Meter("scheduler", board.row("scheduler.0"))
    for name, value in {
        "requests_running": 3, "requests_waiting": 4, "retractions_total": 5, "prompt_tokens_total": 60,
        "cached_tokens_total": 20, "generated_tokens_total": 7, "kv_pages": 8, "kv_pages_owned": 2,
    }.items():  # fmt: skip
        meter.set(name, value)
    names = ["num_requests_running", "num_requests_waiting", "num_preemptions_total", "prompt_tokens_total",
             "prompt_tokens_cached_total", "prefix_cache_queries_total", "prefix_cache_hits_total",
             "generation_tokens_total", "kv_cache_usage_perc"]  # fmt: skip
    assert [told(board, name) for name in names] == [3, 4, 5, 60, 20, 60, 20, 7, 0.25]
    assert scrape(board)["cache_config_info", tuple(sorted(
        {"block_size": "16", "num_gpu_blocks": "8", "engine": "0"}.items()
    ))] == 1  # fmt: skip


def test_an_empty_pool_is_not_in_use(board: Board) -> None:
    assert told(board, "kv_cache_usage_perc") == 0


def test_gateways_are_summed(board: Board) -> None:
    for name, seconds in (("gateway.0", 0.02), ("gateway.1", 3.0)):
        Meter("gateway", board.row(name)).observe("time_to_first_token_seconds", seconds)
    family = "time_to_first_token_seconds"
    assert told(board, f"{family}_bucket", le="0.025") == 1
    assert told(board, f"{family}_count") == 2
    assert told(board, f"{family}_sum") == pytest.approx(3.02)


def test_requests_are_told_apart_by_how_they_ended(board: Board) -> None:
    for gateway, counts in (("gateway.0", (5, 2, 1, 0)), ("gateway.1", (4, 1, 0, 3))):
        for name, count in zip(("finished", "cut", "failed", "cancelled"), counts, strict=True):
            Meter("gateway", board.row(gateway)).add(f"requests_{name}_total", count)
    reasons = {"stop": 6, "length": 3, "error": 1, "abort": 3}
    assert {r: told(board, "request_success_total", finished_reason=r) for r in reasons} == reasons
