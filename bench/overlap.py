"""How far ahead of the device the scheduler is: steps whose plan was queued in time, device idle share.

    stretto bench overlap [--json FILE]

Eight sequences decode at once on a real server, one step ahead and then with --no-overlap; the figures come
from the results' clocks, through `/metrics`.
"""

from __future__ import annotations

import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click

from stretto.bench.launch import Launch, launch
from stretto.bench.options import described
from stretto.bench.plot import Chart
from stretto.bench.report import Report, progress, report_options

SEQUENCES = 8
TOKENS = 128


WAYS = {"one step ahead": "--overlap", "in turn": "--no-overlap"}


@click.command("overlap", help=described(__doc__))
@report_options
def main(json_file: Path | None, plot_file: Path | None) -> None:
    """Measure both ways and report."""
    report = Report("overlap", json_file, plot_file)
    figures: dict[str, Any] = {"sequences": SEQUENCES, "tokens": TOKENS}
    for name, option in progress(WAYS.items(), len(WAYS), "server"):
        with launch(option) as server:
            _load(server)  # warms caches and the clock of the processor
            before = server.metrics()
            _load(server)
            figures[name] = _figures(before, server.metrics())
    print(f"{'':<16}{'plans ahead':>12}{'device idle':>13}{'tokens/s':>10}{'ms/step':>9}")
    for name in WAYS:
        row = figures[name]
        print(
            f"{name:<16}{row['ahead']:>11.1%}{row['idle_share']:>13.2%}"
            f"{row['tokens_per_s']:>10.1f}{row['ms_per_step']:>9.2f}"
        )
    idle = {"device idle": [figures[name]["idle_share"] for name in WAYS]}
    report.publish(figures, Chart("Device idle while there was work", "bars", list(WAYS), idle))


def _load(server: Launch) -> None:
    """Eight greedy completions at once."""

    def one(i: int) -> None:
        body = {"model": "SmolLM2-135M-Instruct", "prompt": f"Story {i}:", "max_tokens": TOKENS}
        body |= {"ignore_eos": True, "temperature": 0}
        request = urllib.request.Request(
            server.url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        urllib.request.urlopen(request).read()

    with ThreadPoolExecutor(SEQUENCES) as pool:
        list(pool.map(one, range(SEQUENCES)))


def _figures(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    grown = {name: after[name] - before.get(name, 0.0) for name in after}
    busy, idle = grown["stretto_device_busy_seconds_total"], grown["stretto_device_idle_seconds_total"]
    return {
        "ahead": grown["stretto_steps_ahead_total"] / grown["stretto_steps_followed_total"],
        "idle_share": idle / (idle + busy),
        "tokens_per_s": grown["stretto_generated_tokens_total"] / (idle + busy),
        "ms_per_step": 1000 * busy / grown["stretto_steps_total"],
    }


if __name__ == "__main__":
    main()
