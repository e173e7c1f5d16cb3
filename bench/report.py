"""Where a bench's figures go: a table on the terminal, a JSON file, a picture; progress bars meanwhile."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from stretto.bench import plot
from stretto.bench.machine import BUSY, is_busy, machine
from stretto.bench.plot import Chart

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

_FILE = click.Path(dir_okay=False, writable=True, path_type=Path)


def report_options(command: F) -> F:
    """Decorator: `--json` and `--plot`, which the command gives to its `Report`."""
    plotting = click.option(
        "--plot", "plot_file", type=_FILE, metavar="FILE.png", callback=_drawable,
        help="Draw the figures; needs matplotlib.",
    )  # fmt: skip
    return click.option(
        "--json", "json_file", type=_FILE, metavar="FILE",
        help="Write the figures, with machine, versions and commit.",
    )(plotting(command))  # fmt: skip


def _drawable(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """Refuse before the bench has run, not after."""
    if path is not None and not plot.available():
        raise click.UsageError(plot.MISSING)
    return path


class Report:
    """Made before a bench runs, because that is when a busy machine can be told from a busy bench."""

    def __init__(
        self, bench: str, json_file: Path | None = None, plot_file: Path | None = None, timed: bool = True
    ) -> None:
        """timed: whether the figures depend on how busy this machine is."""
        self._bench, self._json, self._plot = bench, json_file, plot_file
        self._machine = machine()
        if timed and is_busy():
            click.echo(
                f"stretto: the load average is above {BUSY}: figures taken now are not comparable", err=True
            )

    def publish(self, figures: dict[str, Any], chart: Chart | None = None) -> None:
        """Write the files that were asked for."""
        if self._json is not None:
            result = {"bench": self._bench, "machine": self._machine, **figures}
            self._json.write_text(json.dumps(result, indent=1) + "\n")
        if self._plot is not None and chart is not None:
            plot.draw(chart, self._plot)


def progress(items: Iterable[T], total: int | None = None, unit: str = "it") -> Iterator[T]:
    """The items, with a progress bar on a terminal's standard error."""
    from tqdm import tqdm

    yield from tqdm(items, total=total, unit=unit, disable=None, leave=False, file=sys.stderr)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lines of columns two blanks apart: the first to the left, numbers to the right."""
    cells = [list(header), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    )
