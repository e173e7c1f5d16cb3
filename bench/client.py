"""A load from start to end: warm up, play, count; the shared part of `serve` and `latency`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import click
import uvloop

from stretto.bench import measures
from stretto.bench.answer import Answer
from stretto.bench.load import Asking, Load, Told
from stretto.bench.measures import Cost, Objectives, Shares, Spread, Summary
from stretto.bench.plot import Chart
from stretto.bench.report import table
from stretto.bench.scrape import Server, Unreachable
from stretto.bench.target import Target
from stretto.bench.wire import Wire
from stretto.bench.workload import Session

LATENCIES = {
    "TTFT": "ttft_ms",
    "TTFT, hits": "ttft_hit_ms",
    "TTFT, misses": "ttft_miss_ms",
    "TPOT": "tpot_ms",
    "ITL": "itl_ms",
    "E2E": "e2e_ms",
}
"""What is shown of a `Summary`, in this order."""


class Pace(NamedTuple):
    """A closed loop of `concurrency`, or an open one of `arrivals`, in seconds from the start."""

    concurrency: int = 1
    arrivals: Sequence[float] | None = None


class Outcome(NamedTuple):
    """All that is told of a run."""

    summary: Summary
    shares: Shares
    cost: Cost
    answers: list[Answer]


def measure(
    target: Target, warmup: Sequence[Session], sessions: Sequence[Session], pace: Pace, objectives: Objectives
) -> Outcome:
    """Play the warm-up, which does not count, and then the sessions. Raises `click.ClickException`."""
    server = Server(target.address, target.api_key)
    try:
        asking = Asking(server.model(), target.token_ids)
        uvloop.run(_play(target, asking, warmup, Pace(len(warmup)), lambda answer: None))
        before = server.counters()
        answers, cost = _run(target, asking, sessions, pace)
        shares = measures.shares(before, server.counters())
    except Unreachable as error:
        raise click.ClickException(str(error)) from None
    finally:
        server.close()
    return Outcome(_summary(answers, objectives), shares, cost, answers)


def _run(
    target: Target, asking: Asking, sessions: Sequence[Session], pace: Pace
) -> tuple[list[Answer], Cost]:
    from tqdm import tqdm

    answers: list[Answer] = []
    cpu, start = time.process_time(), time.perf_counter()
    with tqdm(total=sum(map(len, sessions)), unit="req", disable=None, leave=False, mininterval=0.5) as bar:

        def told(answer: Answer) -> None:
            answers.append(answer)
            bar.update()

        uvloop.run(_play(target, asking, sessions, pace, told))
    cpu, seconds = time.process_time() - cpu, time.perf_counter() - start
    return answers, measures.cost(answers, cpu, seconds)


async def _play(target: Target, asking: Asking, sessions: Sequence[Session], pace: Pace, told: Told) -> None:
    wire = _wire(target)
    try:
        load = Load(wire, asking, told)
        if pace.arrivals is None:
            await load.closed(sessions, pace.concurrency)
        else:
            await load.open(sessions, pace.arrivals)
    finally:
        await wire.close()


def _wire(target: Target) -> Wire:
    if target.transport == "websocket":
        from stretto.bench.wire_socket import SocketWire

        return SocketWire(target.address, target.api_key)
    from stretto.bench.wire_http import HttpWire

    return HttpWire(target.address, target.api_key)


def _summary(answers: Sequence[Answer], objectives: Objectives) -> Summary:
    try:
        return measures.summarize(answers, objectives)
    except ValueError:
        raise click.ClickException(f"every request failed; the first: {answers[0].error}") from None


# What is shown.


def figures(outcome: Outcome) -> dict[str, Any]:
    """For the JSON file."""
    summary = outcome.summary._asdict()
    spreads = {name: value._asdict() for name, value in summary.items() if isinstance(value, Spread)}
    return {**summary, **spreads, **outcome.shares._asdict(), "load_generator": outcome.cost._asdict()}


def show(outcome: Outcome, objectives: Objectives) -> None:
    """Print the tables, and why requests failed."""
    click.echo(table(("", ""), _totals(outcome, objectives)).lstrip("\n"))
    spreads = [(name, getattr(outcome.summary, field)) for name, field in LATENCIES.items()]
    rows = [(name, *(f"{value:.1f}" for value in spread)) for name, spread in spreads if spread is not None]
    click.echo("\n" + table(("ms", "mean", "p50", "p90", "p99"), rows))
    errors = sorted({answer.error for answer in outcome.answers if answer.error})
    for error in errors:
        click.echo(f"failed: {error}", err=True)


def _totals(outcome: Outcome, objectives: Objectives) -> list[tuple[str, str]]:
    summary, shares, cost = outcome.summary, outcome.shares, outcome.cost
    rows = [
        ("answered", f"{summary.answered}"),
        ("failed", f"{summary.failed}"),
        ("seconds", f"{summary.seconds:.2f}"),
        ("requests/s", f"{summary.requests_per_s:.2f}"),
        ("output tokens/s", f"{summary.output_tokens_per_s:.1f}"),
        ("total tokens/s", f"{summary.total_tokens_per_s:.1f}"),
    ]
    if objectives != Objectives():
        rows.append(("goodput, requests/s", f"{summary.goodput_per_s:.2f}"))
    rows += [
        ("cache hit rate", _percent(shares.cache_hit_rate)),
        ("device idle", _percent(shares.device_idle_share)),
        ("load generator, of a core", _percent(cost.cpu_share)),
        ("load generator, us per piece", f"{cost.us_per_piece:.1f}"),
    ]
    return rows


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def chart(title: str, outcome: Outcome) -> Chart:
    """The distribution of every latency."""
    times = measures.samples(measures.well(outcome.answers))
    return Chart(title, "shares", (), times, "milliseconds", "share of all", log_x=True)
