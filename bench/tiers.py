"""What memory below the device's pool is worth: hit rates and times to the first token.

    stretto bench tiers
    stretto bench tiers --conversations 32 --turns 6

First many conversations, a turn of each in shuffled order before any has its next, so that a conversation
has been pushed out of the pool, a tenth of what all of them need, when it comes back. Three servers: nothing
below the pool, host memory for everything, and host memory for a quarter with a file store below it. Then
restarts: a prompt that the server before computed, with its files kept and with none.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import click
import httpx

from stretto.bench.launch import Launch, launch
from stretto.bench.options import Positive, described
from stretto.bench.plot import Chart
from stretto.bench.report import Report, progress, report_options, table

VOCABULARY = range(1000, 10_000)
RESTARTS = 3
WARM_UP_TOKENS = 64


class Turn(NamedTuple):
    """One answer: milliseconds to its first token, and the counts of its prompt."""

    ttft_ms: float
    prompt_tokens: int
    cached_tokens: int
    ids: list[int]


@click.command("tiers", help=described(__doc__))
@click.option("--conversations", type=Positive, default=16, show_default=True)
@click.option("--turns", type=Positive, default=4, show_default=True)
@click.option("--input-tokens", type=Positive, default=64, show_default=True, help="New ones of each turn.")
@click.option("--output-tokens", type=Positive, default=8, show_default=True)
@click.option("--prompt-tokens", type=Positive, default=1000, show_default=True, help="For the restarts.")
@report_options
def main(json_file: Path | None, plot_file: Path | None, **asked: int) -> None:
    """Measure and report."""
    report = Report("tiers", json_file, plot_file)
    with TemporaryDirectory(prefix="stretto-bench-") as directory:
        rows = [
            {"tiers": name, **_converse(asked, options)}
            for name, options in _servers(asked, directory).items()
        ]
        restarts = _restart(asked["prompt_tokens"], directory)
    click.echo(_show(rows))
    click.echo("\n" + _show_restarts(restarts))
    report.publish({"settings": asked, "conversations": rows, "restarts": restarts}, _chart(rows))


def _servers(asked: dict[str, int], directory: str) -> dict[str, tuple[str, ...]]:
    longest = asked["turns"] * (asked["input_tokens"] + asked["output_tokens"])
    total = asked["conversations"] * longest
    pool = ("--kv-memory", f"{max(total // 10, longest + 32)}tokens")
    quarter, everything = f"{total // 4}tokens", f"{2 * total}tokens"
    return {
        "none": pool,
        "host": (*pool, "--host-kv-memory", everything),
        "host + disk": (*pool, "--host-kv-memory", quarter, "--disk-kv", f"{directory}/turns"),
    }


def _converse(asked: dict[str, int], options: Sequence[str]) -> dict[str, float]:
    """Figures of the turns after the first, which nobody can have seen."""
    rng = Random(1)
    histories: list[list[int]] = [[] for _ in range(asked["conversations"])]
    later: list[Turn] = []
    with launch(*options) as server, httpx.Client(base_url=server.url, timeout=None, trust_env=False) as http:
        ask(http, rng.choices(VOCABULARY, k=WARM_UP_TOKENS), 1)
        for number in progress(range(asked["turns"]), unit="round"):
            for history in rng.sample(histories, len(histories)):
                history += rng.choices(VOCABULARY, k=asked["input_tokens"])
                turn = ask(http, history, asked["output_tokens"])
                history += turn.ids
                later += [turn] if number else []
        return figures_of(later, _bytes_moved(server))


def figures_of(turns: Sequence[Turn], moved: dict[str, float]) -> dict[str, float]:
    """Hit rate, times, and what was moved."""
    times = sorted(turn.ttft_ms for turn in turns)
    cached, prompts = (
        sum(getattr(turn, name) for turn in turns) for name in ("cached_tokens", "prompt_tokens")
    )
    return {
        "hit_rate": cached / prompts,
        "ttft_ms_p50": median(times),
        "ttft_ms_p90": times[int(0.9 * (len(times) - 1))],
        **moved,
    }


def _bytes_moved(server: Launch) -> dict[str, float]:
    seen = server.metrics()
    kinds = ("out", "in", "saved", "loaded")
    return {f"{kind}_mib": seen.get(f"stretto_kv_{kind}_bytes_total", 0.0) / (1 << 20) for kind in kinds}


def _restart(tokens: int, directory: str) -> list[dict[str, Any]]:
    """TTFT of the same prompt after a start with files and after one without."""
    prompt = Random(2).choices(VOCABULARY, k=tokens)
    kept = ("--disk-kv", f"{directory}/kept")
    first = _first_answer(prompt, kept)
    rows = []
    for _ in progress(range(RESTARTS), unit="restart"):
        for name, options in (("cold", ()), ("with its files", kept)):
            turn = _first_answer(prompt, options)
            same = turn.ids == first.ids
            rows.append({"start": name, "ttft_ms": turn.ttft_ms, "cached": turn.cached_tokens, "same": same})
    return rows


def _first_answer(prompt: list[int], options: Sequence[str]) -> Turn:
    """Of a fresh server that has answered something else before; it writes its files before it ends."""
    with launch(*options) as server, httpx.Client(base_url=server.url, timeout=None, trust_env=False) as http:
        ask(http, Random(3).choices(VOCABULARY, k=WARM_UP_TOKENS), 1)
        return ask(http, prompt, 8)


def ask(http: httpx.Client, prompt: list[int], tokens: int) -> Turn:
    """One greedy completion, streamed."""
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True}
    more = {"stream_options": {"include_usage": True}, "return_token_ids": True}
    began, first, ids, usage = time.perf_counter(), 0.0, list[int](), dict[str, Any]()
    with http.stream("POST", "/v1/completions", json=body | more) as answer:
        answer.raise_for_status()
        for chunk in _chunks(answer):
            for choice in chunk["choices"]:
                ids += choice.get("token_ids") or []
            first = first or (time.perf_counter() if ids else 0.0)
            usage = chunk.get("usage") or usage
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    return Turn(1e3 * (first - began), usage["prompt_tokens"], cached, ids)


def _chunks(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in answer.iter_lines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))


def _show(rows: list[dict[str, Any]]) -> str:
    header = ("below the pool", "hit rate", "TTFT p50 ms", "p90", "MiB out", "in", "saved", "loaded")
    cells = [
        (row["tiers"], f"{row['hit_rate']:.1%}", *(f"{value:.0f}" for value in list(row.values())[2:]))
        for row in rows
    ]
    return table(header, cells)


def _show_restarts(rows: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(row["start"] for row in rows))
    cells = []
    for name in names:
        mine = [row for row in rows if row["start"] == name]
        same = "yes" if all(row["same"] for row in mine) else "NO"
        ttft = median(row["ttft_ms"] for row in mine)
        cells.append((name, f"{ttft:.0f}", str(max(row["cached"] for row in mine)), same))
    return table(("start", "TTFT ms", "cached tokens", "same answer"), cells)


def _chart(rows: list[dict[str, Any]]) -> Chart:
    names = [row["tiers"] for row in rows]
    return Chart(
        "Time to first token", "bars", names, {"p50": [row["ttft_ms_p50"] for row in rows]}, y_label="ms"
    )


if __name__ == "__main__":
    main()
