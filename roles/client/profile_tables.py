"""The figures of a profile as tables on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stretto.roles.client.profile_report import Report

if TYPE_CHECKING:
    from rich.console import Console


def show(figures: Report, console: Console) -> None:
    """Print the figures as tables."""
    if not figures.steps:
        console.print("The device ran no step: send requests while the profile is recorded.")
        return
    for title, header, rows in tables(figures):
        table = _table(title, header)
        for row in rows:
            table.add_row(*row)
        console.print(table)


def tables(figures: Report) -> list[tuple[str, list[str], list[list[str]]]]:
    """(title, header, rows) of each table; those without rows are left out."""
    every = [
        ("Device", ["", ""], _device(figures)),
        (
            "What the device waited for",
            ["stage", "late", "gaps", "total ms", "share", "worst us"],
            _idle(figures),
        ),
        (
            "Scheduler, us per step",
            list(figures.scheduler),
            [[f"{us:.1f}" for us in figures.scheduler.values()]],
        ),
        ("Rings, send to receive", ["ring", "records", "p50 us", "p99 us"], _rings(figures)),
        ("Loops", ["process", "busy"], [[name, _percent(share)] for name, share in figures.loops.items()]),
    ]
    return [(title, header, rows) for title, header, rows in every if rows]


def _device(figures: Report) -> list[list[str]]:
    seconds, wasted = (figures.busy + figures.idle) / 1e9, figures.wasted
    computed, step_ms = figures.generated + wasted, figures.busy / 1e6 / figures.steps
    rows = [
        ["steps", f"{figures.steps} in {figures.seconds:.1f} s, {step_ms:.2f} ms each"],
        ["idle while there was work", f"{_percent(figures.idle_share, 2)} of {seconds:.2f} s"],
        ["queued before the step ahead ended", f"{figures.ahead} of {figures.followed}"],
        ["tokens", f"{figures.generated} generated, {wasted} wasted by deferred stops "
                   f"({_percent(wasted / computed if computed else 0, 2)})"],
    ]  # fmt: skip
    if figures.dropped:
        rows.append(
            ["spans dropped", f"{figures.dropped}: the recording was too long, its end is not complete"]
        )
    return rows


def _idle(figures: Report) -> list[list[str]]:
    return [
        [
            cause.stage,
            cause.role,
            str(cause.gaps),
            f"{cause.total / 1e6:.3f}",
            _percent(cause.total / figures.idle),
            f"{cause.worst / 1e3:.1f}",
        ]
        for cause in figures.causes
    ]


def _rings(figures: Report) -> list[list[str]]:
    return [
        [ring.edge, str(ring.records), f"{ring.p50 / 1e3:.1f}", f"{ring.p99 / 1e3:.1f}"]
        for ring in figures.rings
    ]


def _percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"


def _table(title: str, header: list[str]) -> Any:
    from rich.box import SIMPLE
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=SIMPLE, show_header=any(header))
    for place, name in enumerate(header):
        table.add_column(name, justify="left" if place == 0 else "right")
    return table
