"""Load on a server, over HTTP or WebSocket: throughput, latencies, goodput.

    stretto bench serve --concurrency 8                        a server of its own, eight requests at a time
    stretto bench serve --url http://HOST:PORT --rate 4        a server that runs, four requests a second
    stretto bench serve --workload shared-prefix --prefix-tokens 1000
    stretto bench serve --trace FILE.jsonl                     as in the file; see `bench/trace.py`

`bench/measures.py` defines every figure. Any server will do whose `/v1/completions` takes token ids for a
prompt and has `ignore_eos`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from stretto.bench import trace, workload
from stretto.bench.client import Pace, chart, figures, measure, show
from stretto.bench.measures import Objectives
from stretto.bench.options import Positive, described, shape_of, shape_options, warmup_of
from stretto.bench.report import Report, report_options
from stretto.bench.target import chosen, serving_options, split, target, target_options
from stretto.bench.workload import Session

CONCURRENCY = 8


def _load_options(command: Any) -> Any:
    for option in reversed((
        click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="PER_SECOND",
                     help="Open loop: Poisson arrivals."),
        click.option("--concurrency", type=Positive, help="Closed loop: requests, or conversations, at a "
                     f"time; {CONCURRENCY} where nothing says when to send."),
        click.option("--workload", "kind", default="random", show_default=True,
                     type=click.Choice(["random", "shared-prefix", "multi-turn"])),
        click.option("--prefix-tokens", type=Positive, default=1000, show_default=True,
                     help="Of shared-prefix."),
        click.option("--prefixes", type=Positive, default=1, show_default=True, help="Of shared-prefix."),
        click.option("--turns", type=Positive, default=4, show_default=True, help="Of multi-turn."),
        click.option("--trace", "trace_file", type=click.File(), metavar="FILE.jsonl",
                     help="Take requests, and their times, from a file."),
        click.option("--slo-ttft", type=float, metavar="MS", help="Goodput: the longest TTFT that is good."),
        click.option("--slo-tpot", type=float, metavar="MS", help="Goodput: the longest TPOT that is good."),
    )):  # fmt: skip
        command = option(command)
    return command


@click.command("serve", help=described(__doc__))
@target_options
@_load_options
@shape_options(requests=64)
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
    report = Report("serve", json_file, plot_file)
    serving, load = split(options)
    sessions, pace = _plan(load)
    if load["kind"] == "multi-turn" and no_token_ids:
        raise click.UsageError("multi-turn needs token ids: its prompts are made of the answers")
    objectives = Objectives(_seconds(load["slo_ttft"]), _seconds(load["slo_tpot"]))
    with target(model, url, transport, api_key, no_token_ids, serving) as where:
        outcome = measure(where, warmup_of(load), sessions, pace, objectives)
    show(outcome, objectives)
    file = load.pop("trace_file")
    settings = {"transport": transport, "server": url or chosen(serving), "trace": file and file.name, **load}
    report.publish({"settings": settings, **figures(outcome)}, chart("Latency under load", outcome))


def _plan(load: dict[str, Any]) -> tuple[list[Session], Pace]:
    """What to ask and when. Raises `click.UsageError`."""
    if load["rate"] and load["concurrency"]:
        raise click.UsageError("choose one: --rate (open loop) or --concurrency (closed loop)")
    sessions, arrivals = _sessions(load)
    if load["concurrency"]:
        return sessions, Pace(load["concurrency"])
    if load["rate"]:
        return sessions, Pace(arrivals=workload.poisson(load["rate"], len(sessions), load["seed"]))
    return sessions, Pace(CONCURRENCY, arrivals)


def _sessions(load: dict[str, Any]) -> tuple[list[Session], list[float] | None]:
    """Sessions, and their times if a trace has them."""
    shape, count, seed = shape_of(load), load["requests"], load["seed"]
    if load["trace_file"] is not None:
        try:
            found = trace.read(load["trace_file"], shape.vocabulary, seed)
        except trace.TraceError as error:
            raise click.UsageError(f"{load['trace_file'].name}: {error}") from None
        return found.sessions, found.arrivals
    if load["kind"] == "shared-prefix":
        return workload.shared_prefix(shape, count, seed, load["prefix_tokens"], load["prefixes"]), None
    if load["kind"] == "multi-turn":
        return workload.multi_turn(shape, count, seed, load["turns"]), None
    return workload.independent(shape, count, seed), None


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1e3
