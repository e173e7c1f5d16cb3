"""What rounding costs, of weights or of the KV cache: perplexity, and agreement with the stored weights.

    stretto bench perplexity [MODEL] --text FILE

The default precision computes in float32 on the weights as they are stored, so it is the reference: top-1 is
the share of positions at which a precision prefers the same token, and the divergence is Kullback and
Leibler's from the reference's distribution. The text is cut into windows that are read independently; without
--text it is the documentation of this project.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

import click

import stretto
from stretto.bench.options import Positive, described
from stretto.bench.plot import Chart
from stretto.bench.report import Report, progress, report_options, table
from stretto.kernels import cache, threads
from stretto.roles.config import Config
from stretto.roles.resolve import default_cache, resolve

cache.use(os.fspath(default_cache()))
threads.configure()

import torch  # noqa: E402  (the pool reads its settings when torch is loaded)
from tokenizers import Tokenizer  # noqa: E402

from stretto.roles.executor.kv import KVCache, PageShape  # noqa: E402
from stretto.roles.executor.models import build_model  # noqa: E402
from stretto.roles.executor.models.interface import Context, Model  # noqa: E402
from stretto.roles.executor.models.loader import Loader  # noqa: E402
from stretto.roles.executor.weights.model_config import load_model_config  # noqa: E402
from stretto.roles.executor.weights.safetensors_dir import Weights  # noqa: E402

SMALL_KV = {
    "none, float16 KV": ("none", torch.float16),
    "int8, float16 KV": ("int8", torch.float16),
    "none, fp8 KV": ("none", torch.float8_e4m3fn),
}
"""Weights and KV cache of the rows whose cache is not float32."""
PRECISIONS: tuple[str, ...] = (*get_args(get_type_hints(Config)["quantization"]), *SMALL_KV)
DOCUMENTS = ("README.md", "ARCHITECTURE.md")
CPU = torch.device("cpu")


class Row(NamedTuple):
    """One precision; every figure is over the same predicted tokens."""

    precision: str
    perplexity: float
    top1: float
    """Share of positions at which the reference prefers the same token."""
    divergence: float
    """Nats per token."""


@click.command("perplexity", help=described(__doc__))
@click.argument("model", default="")
@click.option("--text", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="UTF-8.")
@click.option("--tokens", type=Positive, default=4096, show_default=True, help="At most so many are read.")
@click.option("--window", type=click.IntRange(2), default=512, show_default=True, help="Tokens of a window.")
@report_options
def main(
    model: str, text: Path | None, tokens: int, window: int, json_file: Path | None, plot_file: Path | None
) -> None:
    """Measure and report."""
    report = Report("perplexity", json_file, plot_file, timed=False)
    directory = resolve(Config(model=model), click.echo).model_dir
    content = text.read_text("utf-8") if text else documentation()
    tokenizer = Tokenizer.from_file(os.path.join(directory, "tokenizer.json"))
    ids = tokenizer.encode(content, add_special_tokens=False).ids[:tokens]
    rows = measure(directory, windows(ids, window))
    click.echo(table(("precision", "perplexity", "top-1", "divergence"), map(_cells, rows)))
    settings = {"model": Path(directory).name, "tokens": len(ids), "window": window}
    digest = hashlib.sha256(content.encode()).hexdigest()
    figures = {"settings": {**settings, "text_sha256": digest}, "precisions": [row._asdict() for row in rows]}
    bars = {"perplexity": [row.perplexity for row in rows]}
    report.publish(figures, Chart("Perplexity", "bars", [row.precision for row in rows], bars))


def documentation() -> str:
    """The project's own pages. Raises UsageError where they are not installed."""
    root = Path(stretto.__file__).parent
    pages = [root / name for name in DOCUMENTS if (root / name).exists()]
    if not pages:
        raise click.UsageError("the documentation is not beside the package: give --text FILE")
    return "\n".join(page.read_text("utf-8") for page in pages)


def windows(ids: Sequence[int], size: int) -> list[Sequence[int]]:
    """Pieces of `size` ids; a last one of a single id, which predicts nothing, is left out."""
    pieces = [ids[at : at + size] for at in range(0, len(ids), size)]
    return [piece for piece in pieces if len(piece) > 1]


def measure(directory: str, pieces: Sequence[Sequence[int]]) -> list[Row]:
    """A row for each precision, the reference first."""
    models = [load(directory, precision, max(map(len, pieces))) for precision in PRECISIONS]
    sums = torch.zeros(len(models), 3, dtype=torch.float64)
    for piece in progress(pieces, unit="window"):
        labels, expected = torch.tensor(piece[1:]), predict(models[0], piece)
        sums[0] += compare(expected, expected, labels)
        for place, model in enumerate(models[1:], start=1):
            sums[place] += compare(predict(model, piece), expected, labels)
    means = (sums / sum(len(piece) - 1 for piece in pieces)).tolist()
    return [
        Row(precision, math.exp(loss), top1, divergence)
        for precision, (loss, top1, divergence) in zip(PRECISIONS, means, strict=True)
    ]


def load(directory: str, precision: str, longest: int) -> Model:
    """The model at a precision, as the executor has it."""
    weights, kv_dtype = SMALL_KV.get(precision, (precision, None))
    loader = Loader(Weights(directory), CPU, torch.float32, weights, kv_dtype)
    return build_model(load_model_config(directory), loader, longest)


@torch.inference_mode()
def predict(model: Model, ids: Sequence[int]) -> torch.Tensor:
    """Log-probabilities of what follows each id but the last, float32 [len(ids) - 1, vocab]."""
    count = len(ids)
    shape = PageShape(model.kv_layers, count, model.kv_heads, model.head_dim, model.kv_dtype)
    pool: KVCache = shape.allocate(1, CPU)
    context = Context(
        positions=torch.arange(count, dtype=torch.int32),
        cells=torch.arange(count),
        block_tables=torch.zeros(1, 1, dtype=torch.int32),
        query_starts=torch.tensor([0, count], dtype=torch.int32),
        kv_lengths=torch.tensor([count], dtype=torch.int32),
    )
    logits = model(torch.tensor(ids, dtype=torch.int32), context, pool)
    return logits(torch.arange(count - 1)).log_softmax(-1)


def compare(logprobs: torch.Tensor, expected: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Sums over tokens, float64 [3]: loss in nats, same favourites, divergence from `expected` in nats."""
    loss = -logprobs.gather(1, labels[:, None]).double().sum()
    same = (logprobs.argmax(-1) == expected.argmax(-1)).double().sum()
    divergence = (expected.exp() * (expected - logprobs)).double().sum()
    return torch.stack([loss, same, divergence])


def _cells(row: Row) -> tuple[Any, ...]:
    return row.precision, f"{row.perplexity:.3f}", f"{row.top1:.2%}", f"{row.divergence:.5f}"


if __name__ == "__main__":
    main()
