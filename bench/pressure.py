"""Many requests at once in a quarter of the KV memory they want, and many that share a cold prefix.

    stretto bench pressure
    stretto bench pressure --requests 64 --rounds 1

First every request alone on a server with ample memory. Then all at once, in alternating rounds: with ample
memory, with a quarter of it, and with a quarter and host memory below, so that what is retracted is swapped.
Half of the requests are greedy, the others sample with seeds and penalties. Then requests that share a prefix
which nobody has computed, all at once. Every answer is compared with the one given alone, token for token;
the command fails where one differs or is missing, or where the prefix was computed twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, NamedTuple

import click
import httpx

from stretto.bench.launch import Launch, launch
from stretto.bench.options import Positive, described
from stretto.bench.plot import Chart
from stretto.bench.ratios import ratio
from stretto.bench.report import Report, progress, report_options, table
from stretto.bench.wire_http import HttpWire
from stretto.roles.client.address import parse

VOCABULARY = range(1000, 10_000)
PAGE = 16
PREFIX_OWN_TOKENS, PREFIX_OUTPUT_TOKENS = 4, 8
COUNTERS = (
    "retractions",
    "swapped_pages",
    "host_hit_pages",
    "evicted_pages",
    "prompt_tokens",
    "cached_tokens",
)

Body = dict[str, Any]
Outputs = list[list[int]]


class Round(NamedTuple):
    """What came of some requests: their tokens, how long all took, and what the server counted meanwhile."""

    outputs: Outputs
    seconds: float
    counted: dict[str, float]

    @property
    def rate(self) -> float:
        """Output tokens per second."""
        return sum(map(len, self.outputs)) / self.seconds


@click.command("pressure", help=described(__doc__))
@click.option("--requests", type=Positive, default=200, show_default=True)
@click.option("--input-tokens", type=Positive, default=32, show_default=True)
@click.option("--output-tokens", type=Positive, default=32, show_default=True)
@click.option("--rounds", type=Positive, default=2, show_default=True, help="Of each server, in turn.")
@click.option("--sharing", type=Positive, default=32, show_default=True, help="Requests that share a prefix.")
@click.option("--prefix-tokens", type=Positive, default=1000, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed, the same requests.")
@report_options
def main(json_file: Path | None, plot_file: Path | None, **asked: int) -> None:
    """Measure, report, and fail where an answer is wrong."""
    report = Report("pressure", json_file, plot_file)
    crowd = requests_of(asked["requests"], asked["input_tokens"], asked["output_tokens"], asked["seed"])
    family = family_of(asked["sharing"], asked["prefix_tokens"], asked["seed"])
    with ExitStack() as stack:
        servers = {name: stack.enter_context(launch(*options)) for name, options in _servers(asked).items()}
        alone = play(servers["ample"], crowd, at_once=1)
        rounds = {name: list[Round]() for name in servers}
        for _ in progress(range(asked["rounds"]), unit="round"):
            for name, server in servers.items():
                rounds[name].append(play(server, crowd, at_once=len(crowd)))
        family_alone = play(servers["ample"], family, at_once=1)
        together = play(servers["ample"], family, at_once=len(family))
    rows = [figures_of(name, played, rounds["ample"], alone.outputs) for name, played in rounds.items()]
    prefix = prefix_figures(together, family_alone.outputs)
    click.echo(_show(rows, len(crowd)))
    click.echo("\n" + _show_prefix(prefix, asked))
    report.publish({"settings": asked, "servers": rows, "prefix": prefix}, _chart(rows))
    computed_once = asked["prefix_tokens"] + asked["sharing"] * PREFIX_OWN_TOKENS
    if any(row["different"] for row in [*rows, prefix]) or prefix["computed_tokens"] > computed_once:
        raise SystemExit(1)


def requests_of(count: int, input_tokens: int, output_tokens: int, seed: int) -> list[Body]:
    """Bodies of requests of random tokens, every other one sampled, of lengths around those given."""
    rng, bodies = Random(seed), []
    for number in range(count):
        length, more = (
            rng.randint(-(-tokens // 2), 3 * tokens // 2) for tokens in (input_tokens, output_tokens)
        )
        body = _body(rng.choices(VOCABULARY, k=length), more)
        if number % 2:
            body |= {"temperature": 0.8, "seed": number, "frequency_penalty": 0.5, "repetition_penalty": 1.1}
        bodies.append(body)
    return bodies


def family_of(count: int, prefix_tokens: int, seed: int) -> list[Body]:
    """Bodies of requests that share all but their last tokens."""
    rng = Random(seed + 1)
    prefix = rng.choices(VOCABULARY, k=prefix_tokens)
    own = (rng.choices(VOCABULARY, k=PREFIX_OWN_TOKENS) for _ in range(count))
    return [_body(prefix + tail, PREFIX_OUTPUT_TOKENS) for tail in own]


def _body(prompt: list[int], tokens: int) -> Body:
    stream = {"stream": True, "return_token_ids": True}
    return {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, **stream}


def _servers(asked: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """Options of each server. Ample: room for all that run, at their longest."""
    longest = 3 * (asked["input_tokens"] + asked["output_tokens"]) // 2
    shared = asked["prefix_tokens"] + PAGE + asked["sharing"] * 2 * PAGE
    context = max(longest, asked["prefix_tokens"] + PREFIX_OWN_TOKENS + PREFIX_OUTPUT_TOKENS)
    need = asked["requests"] * (asked["input_tokens"] + asked["output_tokens"] + PAGE // 2)
    running = ("--max-seqs", str(max(asked["requests"], asked["sharing"])), "--max-model-len", str(context))
    quarter = (*running, "--kv-memory", f"{max(need // 4, longest + PAGE)}tokens")
    return {
        "ample": (*running, "--kv-memory", f"{max(3 * need // 2, shared)}tokens"),
        "a quarter": quarter,
        "a quarter, host memory below": (*quarter, "--host-kv-memory", f"{need}tokens"),
    }


def play(server: Launch, bodies: Sequence[Body], at_once: int) -> Round:
    """Ask all of a server that has nothing cached. Raises ClickException when a request fails."""
    httpx.post(f"{server.url}/flush_cache", trust_env=False).raise_for_status()
    before, began = server.metrics(), time.perf_counter()
    outputs = asyncio.run(_ask(server.url, bodies, at_once))
    seconds, after = time.perf_counter() - began, server.metrics()
    names = {name: f"stretto_{name}_total" for name in COUNTERS}
    return Round(outputs, seconds, {name: after[full] - before[full] for name, full in names.items()})


async def _ask(url: str, bodies: Sequence[Body], at_once: int) -> Outputs:
    wire, gate = HttpWire(parse(url)), asyncio.Semaphore(at_once)

    async def ask(body: Body) -> list[int]:
        async with gate:
            answer = await wire.ask(body)
        if answer.error:
            raise click.ClickException(f"a request failed: {answer.error}")
        return answer.token_ids

    try:
        return list(await asyncio.gather(*map(ask, bodies)))
    finally:
        await wire.close()


def different(outputs: Outputs, alone: Outputs) -> int:
    """How many answers are not those given alone."""
    return sum(mine != theirs for mine, theirs in zip(outputs, alone, strict=True))


def figures_of(name: str, rounds: list[Round], ample: list[Round], alone: Outputs) -> dict[str, Any]:
    """Of one server: sums over its rounds, and its rate beside the one with ample memory."""
    return {
        "memory": name,
        "output_tokens_per_s": median(played.rate for played in rounds),
        "ratio": ratio([played.rate for played in rounds], [played.rate for played in ample]).median,
        "different": sum(different(played.outputs, alone) for played in rounds),
        **{key: sum(played.counted[key] for played in rounds) for key in COUNTERS[:4]},
    }


def prefix_figures(together: Round, alone: Outputs) -> dict[str, Any]:
    """What the requests with a cold prefix cost when they came at once."""
    prompts, cached = together.counted["prompt_tokens"], together.counted["cached_tokens"]
    return {
        "different": different(together.outputs, alone),
        "prompt_tokens": prompts,
        "computed_tokens": prompts - cached,
        "seconds": together.seconds,
    }


def _show(rows: list[dict[str, Any]], count: int) -> str:
    header = (
        "KV memory",
        "output tokens/s",
        "ratio",
        "different",
        *(name.replace("_", " ") for name in COUNTERS[:4]),
    )
    cells = [
        (
            row["memory"],
            f"{row['output_tokens_per_s']:.0f}",
            f"{row['ratio']:.2f}",
            *(f"{row[name]:.0f}" for name in ("different", *COUNTERS[:4])),
        )
        for row in rows
    ]
    return f"{count} requests at once\n\n" + table(header, cells)


def _show_prefix(prefix: dict[str, Any], asked: Mapping[str, int]) -> str:
    title = f"{asked['sharing']} requests at once, a cold prefix of {asked['prefix_tokens']} tokens"
    figures = [(key.replace("_", " "), f"{value:.6g}") for key, value in prefix.items()]
    return table((title, ""), figures)


def _chart(rows: list[dict[str, Any]]) -> Chart:
    names, rates = [row["memory"] for row in rows], [row["output_tokens_per_s"] for row in rows]
    return Chart(
        "Throughput under pressure", "bars", names, {"all at once": rates}, y_label="tokens per second"
    )


if __name__ == "__main__":
    main()
