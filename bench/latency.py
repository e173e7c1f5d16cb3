"""One request at a time: TTFT, TPOT, ITL and E2E of a server that has nothing else to do.

    stretto bench latency [MODEL]
    stretto bench latency --url http://HOST:PORT

`bench/measures.py` defines every figure. Prompts are random tokens; none is in the prefix cache.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from stretto.bench import workload
from stretto.bench.client import Pace, chart, figures, measure, show
from stretto.bench.measures import Objectives
from stretto.bench.options import described, shape_of, shape_options, warmup_of
from stretto.bench.report import Report, report_options
from stretto.bench.target import chosen, serving_options, split, target, target_options


@click.command("latency", help=described(__doc__))
@target_options
@shape_options(requests=10)
@report_options
@serving_options
def main(
    model: str,
    url: str | None,
    transport: str,
    api_key: str | None,
    no_token_ids: bool,
    json_file: Path | None,
    plot_file: Path | None,
    **options: Any,
) -> None:
    """Measure and report."""
    report = Report("latency", json_file, plot_file)
    serving, load = split(options)
    sessions = workload.independent(shape_of(load), load["requests"], load["seed"])
    with target(model, url, transport, api_key, no_token_ids, serving) as where:
        outcome = measure(where, warmup_of(load), sessions, Pace(1), Objectives())
    show(outcome, Objectives())
    settings = {"transport": transport, "server": url or chosen(serving), **load}
    report.publish({"settings": settings, **figures(outcome)}, chart("Latency of one request", outcome))
