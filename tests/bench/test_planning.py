from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stretto.bench.planning import LOADS, Server, Traffic, forecast, forecasts, server_of, traffic_of
from stretto.bench.workload import Shape
from stretto.roles.executor.errors import ConfigError
from stretto.roles.executor.sim.gpus import GPU

ASKED = {
    "gpu": "h200", "model": "llama-3-8b", "max_seqs": 8, "max_batched_tokens": 2048, "page_size": 16,
    "overlap": True, "efficiency": 1.0, "host_us": 0.0, "prompt": 1000, "output": 11, "spread": 0.0,
    "requests": 1, "seed": 0,
}  # fmt: skip
LAUNCH = 292 * 0.5e-6
PARAMETERS = 7_504_924_672
"""Of llama-3-8b without its embedding."""


def ask(**more: Any) -> tuple[Server, Traffic]:
    return server_of(ASKED | more), traffic_of(ASKED | more)


def test_one_request_alone_takes_its_prompt_and_then_its_steps() -> None:
    alone = forecast(*ask(), None)
    head = 525_336_576
    prompt = 2 * ((PARAMETERS - head) * 1000 + head) + 4 * 32 * 32 * 128 * 1000 * 1001 // 2
    steps = [2 * PARAMETERS + 131_072 * (length + 1) for length in range(1001, 1011)]
    assert alone.summary.ttft_ms is not None
    assert alone.summary.tpot_ms is not None
    assert alone.summary.ttft_ms.p50 == pytest.approx(1e3 * (LAUNCH + prompt / 989.5e12))
    assert alone.summary.tpot_ms.p50 == pytest.approx(1e3 * (LAUNCH + sum(steps) / 10 / 4.8e12))
    assert (alone.running, alone.busy) == (1.0, pytest.approx(1.0))


def test_the_host_costs_nothing_while_it_is_hidden() -> None:
    hidden, bare = (forecast(*ask(host_us=us), None).summary.tpot_ms for us in (1000.0, 0.0))
    turns = forecast(*ask(host_us=1000.0, overlap=False), None).summary.tpot_ms
    assert hidden is not None
    assert bare is not None
    assert turns is not None
    assert hidden.p50 == pytest.approx(bare.p50)
    assert turns.p50 == pytest.approx(bare.p50 + 1.0)


def test_without_rates_the_most_that_can_be_done_and_shares_of_it() -> None:
    server, traffic = ask(requests=20, spread=0.5)
    *shares, most = forecasts(server, traffic, ())
    assert most.rate is None
    assert [each.rate for each in shares] == [share * most.summary.requests_per_s for share in LOADS]
    assert all(each.summary.answered == 20 for each in (*shares, most))


def test_rates_that_are_asked_for_are_all_that_is_told() -> None:
    server, traffic = ask(requests=5)
    assert [each.rate for each in forecasts(server, traffic, (2.0, 4.0))] == [2.0, 4.0]


def test_the_pool_is_what_the_weights_leave() -> None:
    server, _ = ask()
    assert server.limits().pages == 50_639


def test_what_cannot_be_served_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"the weights take 141\.1 GB"):
        forecast(*ask(model="llama-3-70b"), None)
    with pytest.raises(ConfigError, match="the context is 8192 tokens"):
        forecast(*ask(prompt=9000), None)
    small = replace(ask()[0], gpu=GPU(16.1e9, 1e12, 1e14))
    with pytest.raises(ConfigError, match="need 64 KV pages, but the pool has 16"):
        forecast(small, Traffic(Shape(1000, 10), 1, 0), None)
