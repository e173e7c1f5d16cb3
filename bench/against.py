"""Two servers under the same load, in turn: `stretto bench against URL`.

URL is another server with an OpenAI API that runs already, for example vLLM:

    vllm serve MODEL_DIR --dtype float32 --port 9000 --no-enable-prefix-caching
    stretto bench against http://127.0.0.1:9000 --concurrency 8 --no-prefix-cache

Every round has prompts of its own, which both servers get, the one first in one round and the other in the
next. Ratios are ours over theirs, the median of the rounds' own. A server that burns CPU while idle slows the
other one down; Stretto does not.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from stretto.bench import workload
from stretto.bench.client import Pace, measure
from stretto.bench.measures import Objectives, Summary
from stretto.bench.options import Positive, described, shape_of, shape_options, warmup_of
from stretto.bench.report import Report, progress, report_options, table
from stretto.bench.target import Target, chosen, serving_options, split, target

NAMES = ("stretto", "other")


def play(servers: Mapping[str, Target], load: Mapping[str, Any], number: int) -> dict[str, Summary]:
    """One round: what each server made of the same requests."""
    sessions = workload.independent(shape_of(load), load["requests"], load["seed"] + number)
    order = NAMES if number % 2 else NAMES[::-1]
    found = {}
    for name in order:
        warmup = warmup_of(load) if number == 0 else []
        pace = Pace(load["concurrency"])
        found[name] = measure(servers[name], warmup, sessions, pace, Objectives()).summary
        if found[name].failed:
            raise click.ClickException(f"{found[name].failed} requests to {name} failed")
    return found


def figures_of(summary: Summary) -> dict[str, float]:
    """What is compared."""
    assert summary.ttft_ms is not None
    assert summary.tpot_ms is not None
    return {
        "output tokens/s": summary.output_tokens_per_s,
        "TTFT p50 ms": summary.ttft_ms.p50,
        "TTFT p99 ms": summary.ttft_ms.p99,
        "TPOT p50 ms": summary.tpot_ms.p50,
    }


def compare(rounds: list[dict[str, Summary]]) -> list[dict[str, Any]]:
    """For each figure the medians, and the median of the rounds' ratios."""
    told = [{name: figures_of(summary) for name, summary in found.items()} for found in rounds]
    return [
        {
            "figure": figure,
            **{name: statistics.median(found[name][figure] for found in told) for name in NAMES},
            "ratio": statistics.median(found["stretto"][figure] / found["other"][figure] for found in told),
        }
        for figure in told[0]["stretto"]
    ]


@click.command("against", help=described(__doc__))
@click.argument("url")
@click.argument("model", default="")
@click.option("--concurrency", type=Positive, default=8, show_default=True, help="Requests at a time.")
@click.option("--rounds", type=Positive, default=3, show_default=True)
@shape_options(requests=32)
@report_options
@serving_options
def main(url: str, model: str, json_file: Path | None, plot_file: Path | None, **options: Any) -> None:
    """Measure and report."""
    report = Report("against", json_file, plot_file)
    serving, load = split(options)
    with (
        target("", url, "http", None, True, {}) as other,
        target(model, None, "http", None, True, serving) as ours,
    ):
        servers = dict(zip(NAMES, (ours, other), strict=True))
        rounds = [play(servers, load, number) for number in progress(range(load["rounds"]), unit="round")]
    rows = compare(rounds)
    cells = [(row["figure"], *(f"{row[name]:.1f}" for name in NAMES), f"{row['ratio']:.2f}") for row in rows]
    click.echo(table(("", *NAMES, "ratio"), cells))
    report.publish({"settings": {"server": chosen(serving), "other": url, **load}, "figures": rows})


if __name__ == "__main__":
    main()
