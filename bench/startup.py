"""Seconds to ready, first start and later ones; CPU of an idle server; memory of each role.

    stretto bench startup [--json FILE]

The first start converts the model and compiles the kernels into an empty cache directory.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import click

from stretto.bench.launch import Launch, launch
from stretto.bench.options import described
from stretto.bench.plot import Chart
from stretto.bench.report import Report, progress, report_options

IDLE_SECONDS = 10.0
SECOND_STARTS = 3


@click.command("startup", help=described(__doc__))
@report_options
def main(json_file: Path | None, plot_file: Path | None) -> None:
    """Measure and report."""
    report = Report("startup", json_file, plot_file)
    with tempfile.TemporaryDirectory() as cache:
        env = {"STRETTO_CACHE": cache}
        with launch(env=env) as first:
            seconds = [first.ready_seconds]
        for _ in progress(range(SECOND_STARTS), unit="start"):
            with launch(env=env) as server:
                seconds.append(server.ready_seconds)
                figures = _idle(server)
    figures |= {
        "first_start_s": round(seconds[0], 2),
        "later_starts_s": [round(s, 2) for s in seconds[1:]],
    }
    _print(figures)
    places = ["first", *(f"later {place}" for place in range(1, SECOND_STARTS + 1))]
    report.publish(figures, Chart("Start to ready", "bars", places, {"seconds": seconds}, y_label="seconds"))


def _idle(server: Launch) -> dict[str, Any]:
    """CPU share (percent of one core, summed) over `IDLE_SECONDS`, and memory, by process."""
    family = server.family()
    before = {title: sum(process.cpu_times()[:2]) for title, process in family.items()}
    time.sleep(IDLE_SECONDS)
    used = {title: sum(process.cpu_times()[:2]) - before[title] for title, process in family.items()}
    return {
        "idle_cpu_percent": round(100 * sum(used.values()) / IDLE_SECONDS, 2),
        "memory_mib": {t: round(p.memory_full_info().uss / 2**20) for t, p in family.items()},
    }


def _print(figures: dict[str, Any]) -> None:
    print(f"first start to ready   {figures['first_start_s']:.1f} s (model conversion and kernels included)")
    print(f"later starts to ready  {', '.join(f'{s:.1f}' for s in figures['later_starts_s'])} s")
    print(f"idle CPU, all roles    {figures['idle_cpu_percent']:.2f} % of one core")
    for title, mib in figures["memory_mib"].items():
        print(f"  {title:<24}{mib:>6} MiB of its own")


if __name__ == "__main__":
    main()
