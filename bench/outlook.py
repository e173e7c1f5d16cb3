"""Forecasts as a table, as figures and as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stretto.bench.measures import Spread
from stretto.bench.planning import Forecast, Server
from stretto.bench.plot import Chart
from stretto.bench.report import table
from stretto.roles.executor.sim.models import kv_bytes, weight_bytes

HEADER = (
    "requests/s", "answered/s", "output tok/s", "TTFT p50", "p99", "TPOT p50", "p99", "E2E p50", "p99",
    "running", "busy",
)  # fmt: skip
NOTE = (
    "Times in milliseconds; TTFT, TPOT and E2E as `stretto bench` defines them.\n"
    "running: sequences in a step, on average. busy: share of the time in which the device computes."
)


def heading(server: Server, asked: Mapping[str, Any]) -> str:
    """What was asked, and what there is room for. Raises ConfigError when there is none."""
    gpu, limits = server.gpu, server.limits()
    return (
        f"{asked['model']} on {asked['gpu']}: "
        f"{gpu.bandwidth / 1e12:.3g} TB/s, {gpu.flops / 1e12:.4g} TFLOP/s, "
        f"{server.efficiency:.0%} of both reached\n"
        f"{weight_bytes(server.model) / 1e9:.1f} GB of weights, "
        f"{kv_bytes(server.model) / 1e3:.0f} kB of KV per token, "
        f"room for {limits.pages * limits.page_size:,} tokens\n"
        f"{asked['requests']} requests of {asked['prompt']} tokens, answered by {asked['output']}\n"
    )


def text(forecasts: Sequence[Forecast]) -> str:
    """A line for each forecast, and what the columns mean."""
    return table(HEADER, map(_row, forecasts)) + "\n\n" + NOTE


def _row(each: Forecast) -> list[str]:
    summary = each.summary
    rate = "all at once" if each.rate is None else f"{each.rate:.2f}"
    return [
        rate,
        f"{summary.requests_per_s:.2f}",
        f"{summary.output_tokens_per_s:,.0f}",
        *_times(summary.ttft_ms, 0),
        *_times(summary.tpot_ms, 2),
        *_times(summary.e2e_ms, 0),
        f"{each.running:.1f}",
        f"{each.busy:.1%}",
    ]


def _times(spread: Spread | None, digits: int) -> list[str]:
    return ["-", "-"] if spread is None else [f"{value:,.{digits}f}" for value in (spread.p50, spread.p99)]


def figures(forecasts: Sequence[Forecast]) -> dict[str, Any]:
    """All of it, for a file."""
    return {
        "forecasts": [
            {
                "rate": each.rate,
                "running": each.running,
                "busy": each.busy,
                **{
                    name: value._asdict() if isinstance(value, Spread) else value
                    for name, value in each.summary._asdict().items()
                },
            }
            for each in forecasts
        ]
    }


def chart(forecasts: Sequence[Forecast], asked: Mapping[str, Any]) -> Chart:
    """Latencies over answered requests."""
    spreads = {
        "TTFT p50": [each.summary.ttft_ms for each in forecasts],
        "TPOT p50": [each.summary.tpot_ms for each in forecasts],
        "E2E p50": [each.summary.e2e_ms for each in forecasts],
    }
    return Chart(
        title=f"{asked['model']} on {asked['gpu']}, {asked['prompt']} tokens in, {asked['output']} out",
        kind="lines",
        x=[each.summary.requests_per_s for each in forecasts],
        series={name: [one.p50 for one in each if one] for name, each in spreads.items() if all(each)},
        x_label="answers per second",
        y_label="milliseconds",
        log_y=True,
    )
