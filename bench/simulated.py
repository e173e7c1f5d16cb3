"""How well one step ahead hides the host behind a modern GPU, on one that is simulated.

    stretto bench simulated
    stretto bench simulated --textbook       only what needs no server and no quiet machine

The first table is the real scheduler in virtual time: the textbook timeline (device step 10 units,
scheduling 4, processing 3, six steps) and the tokens that deferred stops waste. The second is the real
server, all roles, on `--device sim`: all requests decode at once and are answered when they are complete,
and idle and busy time are those of the results' clocks, from the first request to the last end, prompts and
drain included.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import click
import httpx

from stretto.bench import textbook
from stretto.bench.launch import Launch, launch
from stretto.bench.options import Positive, described
from stretto.bench.plot import Chart
from stretto.bench.report import Report, report_options, table

PROMPT_TOKENS = 128
WARMUP_TOKENS = 16
MODES = (("one step ahead", "--overlap"), ("in turn", "--no-overlap"))
LIMITS = ("--max-batched-tokens", "8192", "--max-model-len", "4096")


@click.command("simulated", help=described(__doc__))
@click.option("--gpu", default="h200", show_default=True)
@click.option("--model", default="llama-3-8b", show_default=True)
@click.option("--sequences", type=Positive, default=256, show_default=True, help="That decode at once.")
@click.option("--tokens", type=Positive, default=512, show_default=True, help="Of each answer.")
@click.option(
    "--step-ms", type=float, default=2.0, show_default=True, help="Of the second device, a fast one."
)
@click.option("--textbook", "only_textbook", is_flag=True, help="Start no server.")
@report_options
def main(json_file: Path | None, plot_file: Path | None, only_textbook: bool, **asked: Any) -> None:
    """Measure and report."""
    report = Report("simulated", json_file, plot_file, timed=not only_textbook)
    figures: dict[str, Any] = {"settings": asked, "textbook": _textbook()}
    click.echo(_show_textbook(figures["textbook"]))
    if not only_textbook:
        figures["served"] = _table_of(asked)
        click.echo("\n" + _show_served(figures["served"]))
    report.publish(figures, None if only_textbook else _chart(figures["served"]))


def _textbook() -> dict[str, dict[str, float]]:
    return {
        "device busy": {name: textbook.busy_share(option == "--overlap") for name, option in MODES},
        "tokens wasted, outputs of 220": _wasted(220),
        "tokens wasted, outputs of 8": _wasted(8),
    }


def _wasted(tokens: int) -> dict[str, float]:
    return {
        "end of sequence": textbook.wasted_share(tokens, by_end=True),
        "length": textbook.wasted_share(tokens, by_end=False),
    }


def _show_textbook(figures: dict[str, dict[str, float]]) -> str:
    rows = [(what, how, f"{share:.2%}") for what, each in figures.items() for how, share in each.items()]
    return table(("textbook", "", "share"), rows)


def _table_of(asked: dict[str, Any]) -> list[dict[str, Any]]:
    devices = {
        f"{asked['gpu']}, {asked['model']}": ("--sim-gpu", asked["gpu"], "--sim-model", asked["model"]),
        f"{asked['step_ms']:g} ms steps": ("--sim-step-ms", str(asked["step_ms"])),
    }
    return [
        {"device": device, "mode": mode, **served(asked["sequences"], asked["tokens"], *options, option)}
        for device, options in devices.items()
        for mode, option in MODES
    ]


def served(sequences: int, tokens: int, *options: str) -> dict[str, float]:
    """Figures of a server on a simulated device with the given options."""
    with launch("--device", "sim", "--max-seqs", str(sequences), *LIMITS, *options) as server:
        _load(server, sequences, WARMUP_TOKENS, seed=1)
        before = server.metrics()
        _load(server, sequences, tokens, seed=2)
        return figures_of(before, server.metrics())


def _load(server: Launch, sequences: int, tokens: int, seed: int) -> None:
    """So many completions at once, of random prompts, to their length."""
    rng = Random(seed)
    prompts = [rng.choices(range(1000, 10_000), k=PROMPT_TOKENS) for _ in range(sequences)]
    body = {"model": "SmolLM2-135M-Instruct", "max_tokens": tokens, "ignore_eos": True, "temperature": 0}

    async def all_at_once() -> None:
        limits = httpx.Limits(max_connections=sequences)
        async with httpx.AsyncClient(
            base_url=server.url, timeout=None, limits=limits, trust_env=False
        ) as http:
            asked = (http.post("/v1/completions", json={**body, "prompt": prompt}) for prompt in prompts)
            for answer in await asyncio.gather(*asked):
                answer.raise_for_status()

    asyncio.run(all_at_once())


def figures_of(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """From two readings of `/metrics`."""

    def grown(name: str) -> float:
        return after[f"stretto_{name}_total"] - before.get(f"stretto_{name}_total", 0.0)

    busy, idle, steps = grown("device_busy_seconds"), grown("device_idle_seconds"), grown("steps")
    return {
        "idle_share": idle / (idle + busy),
        "ahead": grown("steps_ahead") / grown("steps_followed"),
        "ms_per_step": 1e3 * busy / steps,
        "idle_us_per_step": 1e6 * idle / steps,
        "tokens_per_s": grown("generated_tokens") / (idle + busy),
    }


def _show_served(rows: list[dict[str, Any]]) -> str:
    header = ("device", "", "idle", "plans ahead", "ms/step", "idle us/step", "tokens/s")
    return table(header, map(_row, rows))


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["device"],
        row["mode"],
        f"{row['idle_share']:.2%}",
        f"{row['ahead']:.1%}",
        f"{row['ms_per_step']:.3f}",
        f"{row['idle_us_per_step']:.0f}",
        f"{row['tokens_per_s']:,.0f}",
    )


def _chart(rows: list[dict[str, Any]]) -> Chart:
    devices = list(dict.fromkeys(row["device"] for row in rows))
    series = {mode: [100 * row["idle_share"] for row in rows if row["mode"] == mode] for mode, _ in MODES}
    return Chart("Device idle share", "bars", devices, series, y_label="%")


if __name__ == "__main__":
    main()
