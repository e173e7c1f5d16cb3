"""The figures of a trace: how busy the device was, who it waited for, what the host's work costs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from stretto.roles.client.profile_gaps import Cause, causes
from stretto.roles.client.profile_spans import Span, Spans

SCHEDULER = "scheduler.0"
SCHEDULING = ("turn", "digest", "plan", "match", "encode", "deliver")
"""Spans of the scheduler, the whole first; "match" is a part of "plan"."""

ROUNDING = 1000
"""Nanoseconds: clocks are seconds in floating point."""


class Latency(NamedTuple):
    """Of a ring, from the call of `send` until the receiver has the record; nanoseconds."""

    edge: str
    records: int
    p50: int
    p99: int


class Report(NamedTuple):
    """Times are nanoseconds, unless they say otherwise."""

    seconds: float
    steps: int
    busy: int
    idle: int
    """While there was work."""
    ahead: int
    """Steps that were queued before the one ahead of them had ended."""
    followed: int
    """Steps that followed another one without a pause for want of work."""
    causes: list[Cause]
    scheduler: dict[str, float]
    """Microseconds per step, by span."""
    rings: list[Latency]
    loops: dict[str, float]
    """By process: the share of the time in which its loop had something to do."""
    generated: int
    wasted: int
    """Tokens that deferred stops cost."""
    dropped: int
    """Spans that found no room."""

    @property
    def idle_share(self) -> float:
        """Device idle fraction: idle / (idle + busy), 0 where it did nothing."""
        return self.idle / (self.idle + self.busy) if self.busy else 0.0


def report(trace: Mapping[str, Any]) -> Report:
    """The figures of a trace as `POST /stop_profile` gives it."""
    spans, other = Spans(trace), trace["otherData"]
    steps = spans.named("step")
    counted = other["counters"].get(SCHEDULER, {})
    ahead, followed = _ahead(spans, steps)
    return Report(
        seconds=other["seconds"],
        steps=len(steps),
        busy=sum(_length(step) for step in steps),
        idle=sum(step.args["idle_ns"] for step in steps),
        ahead=ahead,
        followed=followed,
        causes=causes(spans),
        scheduler=_scheduler(spans, len(steps)),
        rings=[found for edge in spans.edges if (found := _latency(spans, edge)) is not None],
        loops=_loops(spans, other["seconds"]),
        generated=round(counted.get("generated_tokens_total", 0)),
        wasted=round(counted.get("wasted_tokens_total", 0)),
        dropped=sum(other["dropped"].values()),
    )


def percentile(values: Sequence[int], share: float) -> int:
    """The smallest value that `share` of all do not exceed (nearest rank)."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def _ahead(spans: Spans, steps: list[Span]) -> tuple[int, int]:
    """(steps queued in time, steps that had one ahead of them)."""
    followed = ahead = 0
    for before, step in itertools.pairwise(steps):
        queued = spans.of_step("queued", step.args["step"], step.start)
        paused = step.start - before.end > step.args["idle_ns"] + ROUNDING
        if queued is not None and not paused:
            followed += 1
            ahead += queued.start <= before.end
    return ahead, followed


def _scheduler(spans: Spans, steps: int) -> dict[str, float]:
    totals = {name: sum(map(_length, spans.of_process(name, SCHEDULER))) for name in SCHEDULING}
    return {name: total / 1000 / steps for name, total in totals.items()} if steps else {}


def _latency(spans: Spans, edge: str) -> Latency | None:
    pairs = [(spans.sent(received), received) for received in spans.of_ring("receive", edge)]
    lengths = [received.end - sent.start for sent, received in pairs if sent is not None]
    if not lengths:
        return None
    return Latency(edge, len(lengths), percentile(lengths, 0.5), percentile(lengths, 0.99))


def _loops(spans: Spans, seconds: float) -> dict[str, float]:
    """Of the outermost spans of each process; the device has a row of its own."""
    busy: dict[str, int] = {}
    until: dict[str, int] = {}
    for span in spans.all:
        if not span.process.startswith("device ") and span.start >= until.get(span.process, 0):
            until[span.process] = span.end
            busy[span.process] = busy.get(span.process, 0) + _length(span)
    return {process: total / 1e9 / seconds for process, total in busy.items()}


def _length(span: Span) -> int:
    return span.end - span.start
