"""A bench's figures as a picture, where matplotlib is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

MISSING = "--plot needs matplotlib, which is not installed: pip install matplotlib"


class Chart(NamedTuple):
    """Series over a common axis; `kind` says whether their x are categories, numbers or samples."""

    title: str
    kind: str
    """"bars": a bar per label; "lines": y over x; "shares": of each series, the share of values below x."""
    x: Sequence[str | float]
    """Labels of bars, or x of lines; of no use for shares."""
    series: Mapping[str, Sequence[float]]
    x_label: str = ""
    y_label: str = ""
    log_x: bool = False
    log_y: bool = False


def available() -> bool:
    """Whether a picture can be drawn."""
    return find_spec("matplotlib") is not None


def draw(chart: Chart, path: Path) -> None:
    """Write the chart as PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for place, (name, values) in enumerate(chart.series.items()):
        if chart.kind == "bars":
            width = 0.8 / len(chart.series)
            axes.bar([i + width * place for i in range(len(values))], values, width, label=name)
        elif chart.kind == "lines":
            axes.plot(chart.x, values, marker="o", label=name)
        else:
            axes.ecdf(values, label=name)
    if chart.kind == "bars":
        middle = 0.4 - 0.4 / len(chart.series)
        axes.set_xticks([i + middle for i in range(len(chart.x))], [str(x) for x in chart.x], rotation=20)
    axes.set(title=chart.title, xlabel=chart.x_label, ylabel=chart.y_label)
    axes.set_xscale("log" if chart.log_x else axes.get_xscale())
    axes.set_yscale("log" if chart.log_y else axes.get_yscale())
    axes.legend()
    figure.savefig(path, format="png", dpi=120)
