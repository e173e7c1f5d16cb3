"""Offline throughput: many prompts at once through `LLM`, as a batch job does it.

    stretto bench throughput [MODEL] --requests 32 --input-tokens 128 --output-tokens 64

Prompts are random tokens, new ones for every repeat, so that no cache helps; decoding is greedy and every
answer as long as was asked. Tokens per second count the whole run, prompts included in its time, but not the
start-up.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from stretto.bench import workload
from stretto.bench.options import Positive, described, shape_of, shape_options, warmup_of
from stretto.bench.plot import Chart
from stretto.bench.report import Report, progress, report_options, table
from stretto.bench.target import chosen, serving_options, split
from stretto.bench.workload import Session
from stretto.roles.client import LLM, StrettoError
from stretto.roles.messages import SamplingParams


class Batch(NamedTuple):
    """One repeat."""

    seconds: float
    requests: int
    prompt_tokens: int
    output_tokens: int

    @property
    def output_tokens_per_s(self) -> float:
        return self.output_tokens / self.seconds


@click.command("throughput", help=described(__doc__))
@click.argument("model", default="")
@click.option("--repeats", type=Positive, default=3, show_default=True, help="The table has their median.")
@shape_options(requests=32)
@report_options
@serving_options
def main(model: str, repeats: int, json_file: Path | None, plot_file: Path | None, **options: Any) -> None:
    """Measure and report."""
    report = Report("throughput", json_file, plot_file)
    serving, load = split(options)
    shape, count, seed = shape_of(load), load["requests"], load["seed"]
    try:
        with LLM(model, quiet=True, **chosen(serving)) as llm:
            run(llm, warmup_of(load))
            turns = progress(range(repeats), unit="batch")
            batches = [run(llm, workload.independent(shape, count, seed + turn)) for turn in turns]
    except StrettoError as error:
        raise click.ClickException(str(error)) from None
    click.echo(table(("", "median of repeats"), _rows(batches)))
    figures = [batch._asdict() | {"output_tokens_per_s": batch.output_tokens_per_s} for batch in batches]
    settings = {"server": chosen(serving), "repeats": repeats, **load}
    report.publish({"settings": settings, "batches": figures}, _chart(batches))


def run(llm: LLM, sessions: Sequence[Session]) -> Batch:
    """Generate the answers to all prompts."""
    turns = [turn for session in sessions for turn in session]
    params = [SamplingParams(max_tokens=turn.output_tokens, temperature=0, ignore_eos=True) for turn in turns]
    start = time.perf_counter()
    outputs = llm.generate([turn.prompt for turn in turns], params, use_tqdm=False)
    seconds = time.perf_counter() - start
    tokens = sum(len(output.outputs[0].token_ids) for output in outputs)
    return Batch(seconds, len(turns), sum(len(output.prompt_token_ids) for output in outputs), tokens)


def _rows(batches: Sequence[Batch]) -> list[tuple[str, str]]:
    seconds = statistics.median(batch.seconds for batch in batches)
    output = statistics.median(batch.output_tokens_per_s for batch in batches)
    total = statistics.median(
        (batch.prompt_tokens + batch.output_tokens) / batch.seconds for batch in batches
    )
    return [
        ("requests", f"{batches[0].requests}"),
        ("seconds", f"{seconds:.2f}"),
        ("requests/s", f"{batches[0].requests / seconds:.2f}"),
        ("output tokens/s", f"{output:.1f}"),
        ("total tokens/s", f"{total:.1f}"),
    ]


def _chart(batches: Sequence[Batch]) -> Chart:
    rates = [batch.output_tokens_per_s for batch in batches]
    places = [f"repeat {place}" for place in range(1, len(batches) + 1)]
    return Chart(
        "Offline throughput", "bars", places, {"output tokens/s": rates}, y_label="tokens per second"
    )
