"""What a recording costs: microseconds per span, and a recorded server beside one that is not.

    stretto bench profiling [--rounds N] [--json FILE]

A server on the embedded model decodes eight sequences, in turn recorded and not; the figure is the median
over rounds of the ratio of step times. A probe that is not in place costs nothing: the function is the
role's own.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from stretto.bench import recording
from stretto.bench.launch import Launch, launch
from stretto.bench.options import described
from stretto.bench.report import Report, progress, report_options, table
from stretto.roles.trace import Recorder, span
from stretto.shm.trace import Section, Traces

REQUESTS, TOKENS = 8, 96
CALLS = 100_000


class Work:
    """Does nothing, so that what is around it can be measured."""

    def act(self, step: int) -> None:
        return None


def span_microseconds(calls: int = CALLS) -> tuple[float, float]:
    """(of a call that is recorded, of a bare one), mean over `calls`."""
    fd = Traces.create(["bench.0"], capacity=calls)
    section = Traces(fd).section("bench.0")
    recorder, work = Recorder(), Work()
    bare = _mean(work, calls)
    recorder.start(section, (span(Work, "act", "act", ("step",), lambda _, work, step: (step,)),), since=1)
    recorded = _mean(work, calls)
    recorder.stop()
    os.close(fd)
    return recorded, bare


def record_microseconds(calls: int = CALLS) -> float:
    """Of the record alone, mean."""
    fd = Traces.create(["bench.0"], capacity=calls)
    section: Section = Traces(fd).section("bench.0")
    section.begin(1)
    label, record = section.label("act"), section.record
    began = time.perf_counter()
    for i in range(calls):
        record(label, i, i, i)
    took = time.perf_counter() - began
    os.close(fd)
    return took / calls * 1e6


def _mean(work: Work, calls: int) -> float:
    began = time.perf_counter()
    for i in range(calls):
        work.act(i)
    return (time.perf_counter() - began) / calls * 1e6


def step_milliseconds(server: Launch) -> float:
    """Time per step, idle time included, over one load."""
    before = server.metrics()
    recording.load(server.url, REQUESTS, TOKENS)
    after = server.metrics()
    names = ("stretto_device_busy_seconds_total", "stretto_device_idle_seconds_total", "stretto_steps_total")
    busy, idle, steps = (after[name] - before[name] for name in names)
    return 1000 * (busy + idle) / steps


def _recorded(server: Launch) -> tuple[float, int]:
    """(milliseconds per step, spans) of a load that is recorded."""
    recording.start(server.url)
    took = step_milliseconds(server)
    events = recording.stop(server.url)["traceEvents"]
    return took, sum(event["ph"] == "X" for event in events)


def measure(server: Launch, rounds: int, shown: Callable[[range], Any] = iter) -> dict[str, float]:
    """The figures of a server in turn recorded and not."""
    recording.load(server.url, REQUESTS, TOKENS)
    ratios, plain, spans = [], [], 0
    for _ in shown(range(rounds)):
        plain.append(step_milliseconds(server))
        took, spans = _recorded(server)
        ratios.append(took / plain[-1])
    return {
        "ms_per_step": statistics.median(plain),
        "recorded_ratio": statistics.median(ratios),
        "spans_per_step": spans / TOKENS,
    }


@click.command("profiling", help=described(__doc__))
@click.option("--rounds", type=click.IntRange(min=1), default=7, show_default=True)
@report_options
def main(rounds: int, json_file: Path | None, plot_file: Path | None) -> None:
    """Measure and report."""
    report = Report("profiling", json_file, plot_file)
    recorded, bare = span_microseconds()
    with launch() as server:
        figures = measure(server, rounds, lambda rounds: progress(rounds, len(rounds), "round"))
    figures |= {"span_us": recorded - bare, "record_us": record_microseconds(), "rounds": rounds}
    rows = [
        ("a span", f"{figures['span_us']:.2f} us, of which the record {figures['record_us']:.2f}"),
        ("a step, all roles together", f"{figures['spans_per_step']:.0f} spans"),
        ("step time, recorded / not", f"{figures['recorded_ratio']:.3f} of {figures['ms_per_step']:.2f} ms"),
    ]
    click.echo(table(("recording", "costs"), rows))
    report.publish(figures)


if __name__ == "__main__":
    main()
