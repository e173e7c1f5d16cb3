"""KV memory by the real scheduler, in virtual time and without a model.

How full a pool of 12,000 tokens is under a ShareGPT-like stream, beside contiguous reservation; how much of
30 tasks' few-shot prompts is reused in a cache as small as the longest request; by how many a request can be
overtaken; and what the prefix tree costs as it grows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from stretto.bench import caching
from stretto.bench.options import Positive, described
from stretto.bench.report import Report, report_options, table
from stretto.roles.scheduler.limits import SchedulePolicy

POOL_TOKENS = 12_000
RATES = (50.0, 100.0, 200.0)
"""Requests a second, of which the modelled device can serve some 70."""
POLICIES: tuple[SchedulePolicy, ...] = ("prefix", "fcfs")
BOUNDS = (16, 64, 256)
SIZES = (1_000, 10_000, 100_000, 1_000_000)


@click.command("cache", help=described(__doc__))
@click.option(
    "--requests", type=Positive, default=1000, show_default=True, help="Of the ShareGPT-like stream."
)
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed, the same streams.")
@report_options
def main(json_file: Path | None, plot_file: Path | None, **asked: Any) -> None:
    """Measure and report."""
    report = Report("cache", json_file, plot_file)
    figures: dict[str, Any] = {"settings": asked}
    for name, measure, show in (
        ("memory", _memory, _show_memory),
        ("reuse", _reuse, _show_reuse),
        ("overtaken", _overtaken, _show_overtaken),
        ("tree_us", _tree, _show_tree),
    ):
        figures[name] = measure(asked)
        click.echo(show(figures[name]) + "\n")
    report.publish(figures)


def _memory(asked: dict[str, Any]) -> dict[str, dict[str, float]]:
    stream = caching.sharegpt_like(asked["requests"], asked["seed"])
    return {
        "paged": caching.paged(stream, POOL_TOKENS),
        "contiguous, maximum": caching.contiguous(stream, POOL_TOKENS, "maximum"),
        "contiguous, power of two": caching.contiguous(stream, POOL_TOKENS, "power of two"),
    }


def _show_memory(figures: dict[str, dict[str, float]]) -> str:
    columns = ("of what is reserved", "of the pool, running", "of the pool, running and cached")
    header = ["share of memory that holds tokens", *columns, "sequences at once"]
    return table(
        header,
        [
            [name, *(f"{row[key]:.1%}" if key in row else "-" for key in columns), f"{row[header[-1]]:.1f}"]
            for name, row in figures.items()
        ],
    )


def _reuse(asked: dict[str, Any]) -> dict[str, Any]:
    stream = caching.few_shot(30, 10, asked["seed"])
    pool = caching.longest(stream)
    return {
        "optimum": caching.optimum(stream),
        "hit rate, pages of 1": {name: caching.hit_rate(stream, name, pool, page=1) for name in POLICIES},
        "hit rate, pages of 16": {
            name: caching.hit_rate(stream, name, pool + caching.PAGE) for name in POLICIES
        },
        "of the optimum, arrivals per second": {
            str(rate): {name: caching.online(stream, name, 12 * pool, rate) for name in POLICIES}
            for rate in RATES
        },
    }


def _show_reuse(figures: dict[str, Any]) -> str:
    best = figures["optimum"]
    rows = [
        [name, *(f"{figures[name][p]:.1%}" for p in POLICIES), f"{best:.1%}"] for name in list(figures)[1:3]
    ]
    for rate, shares in figures["of the optimum, arrivals per second"].items():
        rows.append([f"share of it, {rate} arrivals/s", *(f"{shares[p]:.1%}" for p in POLICIES), "100.0%"])
    return table(["30 tasks x 10 questions, shuffled", *POLICIES, "optimum"], rows)


def _overtaken(asked: dict[str, Any]) -> dict[str, int]:
    bounded = {str(bound): caching.most_overtaken(bound) for bound in BOUNDS}
    return {**bounded, "none": caching.most_overtaken(1 << 30), "fcfs": caching.most_overtaken(64, "fcfs")}


def _show_overtaken(figures: dict[str, int]) -> str:
    return table(["--max-overtakes", "most overtaken"], [[k, str(v)] for k, v in figures.items()])


def _tree(asked: dict[str, Any]) -> list[dict[str, Any]]:
    return [caching.tree_costs(size) for size in SIZES]


def _show_tree(figures: list[dict[str, Any]]) -> str:
    names = ("match", "insert", "evict")
    return table(
        ["microseconds, by cached tokens", *names],
        [[f"{row['cached tokens']:,}", *(f"{row[name]:.1f}" for name in names)] for row in figures],
    )
