"""A picture of a few steps, from a recording: who works when, and step N+1 queued while step N runs.

    python -m stretto.bench.timeline [TRACE.json] [--out FILE.svg]

TRACE is what `stretto profile` wrote; without one, a server on the embedded model is recorded while it
answers two requests. Of all windows of so many steps the picture shows the one of median length.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click

from stretto.bench import recording
from stretto.bench.launch import launch
from stretto.bench.machine import machine
from stretto.bench.options import described
from stretto.bench.svg import Svg
from stretto.roles.client.profile_spans import Span, Spans

WIDTH, MARGIN = 1000, 120
TOP, ROW, BAR = 50, 34, 24
"""Pixels: where the first row begins, from row to row, and the height of a bar."""
COLORS = ("#2a6fb0", "#c8601a", "#3d8b52")
"""Of a step and of all that is done for it, by its number."""
OTHER = "#9aa0a6"

ROWS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("gateway", "gateway.0", ("deliver", "write")),
    ("detokenizer", "detokenizer.0", ("turn",)),
    ("scheduler", "scheduler.0", ("deliver", "digest", "plan", "encode")),
    ("executor", "executor.0", ("collect", "encode", "launch")),
    ("device queue", "device of executor.0", ("queued",)),
    ("device", "device of executor.0", ("step",)),
)
"""(title, process, spans drawn)."""
TITLES = [title for title, *_ in ROWS]
REQUESTS, TOKENS = 2, 60


class Window(NamedTuple):
    """What is drawn, in nanoseconds."""

    start: int
    end: int

    def x(self, time: int) -> float:
        """The place of a moment."""
        scale = (WIDTH - MARGIN - 10) / (self.end - self.start)
        return MARGIN + scale * (min(max(time, self.start), self.end) - self.start)

    def has(self, span: Span) -> bool:
        """Whether any of it is seen."""
        return span.end > self.start and span.start < self.end


@click.command("timeline", help=described(__doc__))
@click.argument("trace", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), default="timeline.svg", show_default=True
)
@click.option("--steps", type=click.IntRange(min=2), default=4, show_default=True, help="Steps to show.")
def main(trace: Path | None, out: Path, steps: int) -> None:
    """Draw."""
    if trace is None:
        out.write_text(draw(_record(), steps, _caption()))
    else:
        out.write_text(draw(json.loads(trace.read_text()), steps))
    click.echo(f"wrote {out}")


def _record() -> dict[str, Any]:
    with launch() as server:
        recording.load(server.url, REQUESTS, TOKENS)  # warms caches
        recording.start(server.url)
        recording.load(server.url, REQUESTS, TOKENS)
        return recording.stop(server.url)


def _caption() -> str:
    here = machine()
    return f"{recording.MODEL}, {REQUESTS} requests, {here['cpu']}, {here['cores']} cores, {here['commit']}"


def draw(trace: Mapping[str, Any], steps: int, caption: str = "") -> str:
    """The picture, as SVG. Raises ClickException where the trace has too few steps."""
    spans = Spans(trace)
    window = choose(spans.named("step"), steps)
    svg = Svg(WIDTH, TOP + ROW * len(ROWS) + 44)
    svg.text(10, 22, "One step ahead: while the device runs step N, step N+1 waits on its queue", size=15)
    for place, title in enumerate(TITLES):
        svg.text(10, _y(place) + 16, title)
        svg.line(MARGIN, _y(place) + ROW - 5, WIDTH - 10, _y(place) + ROW - 5, "#e4e6e8")
    for place, (_, process, names) in enumerate(ROWS):
        for name in names:
            for span in filter(window.has, spans.of_process(name, process)):
                _bar(svg, window, span, place)
    for start, end in arrows(spans, window):
        svg.arrow(*_point(window, *start), *_point(window, *end))
    _axis(svg, window)
    svg.text(10, TOP + ROW * len(ROWS) + 36, caption, "#57606a", size=10)
    return svg.done()


def choose(steps: list[Span], count: int) -> Window:
    """`count` steps in a row that take the median time of all such rows, and a little of the next one."""
    if len(steps) <= count:
        raise click.ClickException(f"the trace has {len(steps)} steps, which is too few to show {count}")
    windows = [Window(steps[i].start, steps[i + count].start) for i in range(len(steps) - count)]
    typical = sorted(windows, key=lambda window: window.end - window.start)[len(windows) // 2]
    return Window(typical.start, typical.end + (typical.end - typical.start) // 20)


def arrows(spans: Spans, window: Window) -> Iterator[tuple[tuple[int, str], tuple[int, str]]]:
    """From each plan to its place in the queue, and from each step to the digestion of its result."""
    for plan in filter(window.has, spans.named("plan")):
        queued = spans.of_step("queued", plan.args["step"], window.end)
        if queued is not None and queued.start >= plan.start:
            yield (plan.end, "scheduler"), (queued.start, "device queue")
    for digest in filter(window.has, spans.named("digest")):
        step = spans.of_step("step", digest.args["step"], digest.start)
        if step is not None:
            yield (step.end, "device"), (digest.start, "scheduler")


def _y(place: int) -> int:
    return TOP + ROW * place


def _point(window: Window, time: int, title: str) -> tuple[float, float]:
    return window.x(time), _y(TITLES.index(title)) + BAR / 2


def _bar(svg: Svg, window: Window, span: Span, place: int) -> None:
    step = span.args.get("step")
    color = OTHER if step is None else COLORS[step % len(COLORS)]
    x, width = window.x(span.start), window.x(span.end) - window.x(span.start)
    words = f"{span.name} {step}" if step is not None else span.name
    told = f"{span.process}: {words}, {(span.end - span.start) / 1e6:.3f} ms"
    svg.rect(x, _y(place), max(width, 1.5), BAR, color, told, faint=span.name == "queued")
    if width > 60:
        label = f"step {step} queued" if span.name == "queued" else words
        svg.text(
            x + width / 2, _y(place) + 16, label, "#ffffff" if span.name == "step" else "#1f2328", middle=True
        )


def _axis(svg: Svg, window: Window) -> None:
    """Marks at round milliseconds from the beginning of the window."""
    whole = (window.end - window.start) / 1e6
    tick = next(size for size in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 1e9) if whole / size <= 12)
    bottom = TOP + ROW * len(ROWS)
    for i in range(int(whole / tick) + 1):
        x = window.x(window.start + round(i * tick * 1e6))
        svg.line(x, TOP - 8, x, bottom, "#f0f1f2")
        svg.text(x, bottom + 16, f"{i * tick:g} ms" if i else "0", "#57606a", middle=True)


if __name__ == "__main__":
    main()
