"""Options that several benches share: what their requests look like."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from stretto.bench import workload
from stretto.bench.workload import Session, Shape

F = TypeVar("F", bound=Callable[..., Any])

Positive = click.IntRange(min=1)
WARMUP_SEED_STEP = 1_000_003
"""Keeps warm-up prompts apart from the measured ones, which the prefix cache must not know."""


def shape_options(requests: int, warmup: int = 2) -> Callable[[F], F]:
    """Decorator: how many requests, of what lengths; the arguments are defaults."""
    options = (
        click.option("--warmup", type=click.IntRange(min=0), default=warmup, show_default=True,
                     help="Requests that are sent before and do not count."),
        click.option("--requests", type=Positive, default=requests, show_default=True,
                     help="Requests, or conversations."),
        click.option("--input-tokens", type=Positive, default=128, show_default=True),
        click.option("--output-tokens", type=Positive, default=64, show_default=True),
        click.option("--spread", type=click.FloatRange(0, 1), default=0.0, show_default=True,
                     help="Lengths vary by up to this share."),
        click.option("--vocabulary", type=Positive, default=10_000, show_default=True,
                     help="Random token ids are below this."),
        click.option("--seed", type=int, default=0, show_default=True, help="The same seed, the same load."),
    )  # fmt: skip

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def shape_of(load: Mapping[str, Any]) -> Shape:
    """The lengths that were asked for."""
    return Shape(load["input_tokens"], load["output_tokens"], load["spread"], load["vocabulary"])


def warmup_of(load: Mapping[str, Any]) -> list[Session]:
    """Requests of the same lengths that share nothing with the measured ones."""
    return workload.independent(shape_of(load), load["warmup"], load["seed"] + WARMUP_SEED_STEP)


def described(docstring: str | None) -> str:
    """A module's docstring as a command's help: paragraphs are wrapped, indented ones kept as they are."""
    paragraphs = (docstring or "").strip().split("\n\n")
    return "\n\n".join("\b\n" + text if text.startswith("    ") else text for text in paragraphs)
