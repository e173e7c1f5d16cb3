"""A trace of `POST /stop_profile`, to be asked for spans by process, name and step.

Times are nanoseconds since the recording began, as they were recorded; the file has them in microseconds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple


class Span(NamedTuple):
    """What a process did, half open: [start, end)."""

    start: int
    end: int
    process: str
    name: str
    args: Mapping[str, Any]


class Spans:
    """All spans of a trace, each list in order of time."""

    def __init__(self, trace: Mapping[str, Any]) -> None:
        events = trace["traceEvents"]
        processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
        found = [_span(event, processes) for event in events if event["ph"] == "X"]
        self.all = sorted(found, key=lambda span: (span.start, -span.end))
        self._found: dict[tuple[Any, ...], list[Span]] = defaultdict(list)
        for span in self.all:
            for key in _keys(span):
                self._found[key].append(span)

    def named(self, name: str) -> list[Span]:
        """Those of this name."""
        return self._found.get((name,), [])

    def of_process(self, name: str, process: str) -> list[Span]:
        """Those of this name and process."""
        return self._found.get((name, process), [])

    def of_step(self, name: str, step: int, until: int) -> Span | None:
        """The last of this name for a step that begins by `until`: a new device counts its steps anew."""
        return last(self._found.get((name, "step", step), []), until)

    def of_ring(self, name: str, edge: str) -> list[Span]:
        """Those of one ring; `name` is "send" or "receive"."""
        return self._found.get((name, "edge", edge), [])

    @property
    def edges(self) -> list[str]:
        """Rings that something was received from."""
        return sorted({span.args["edge"] for span in self.named("receive")})

    def sent(self, received: Span) -> Span | None:
        """How a record of a ring was sent; None where that was not recorded."""
        return last(self._found.get(("send", *_place(received)), []), received.end)

    def received(self, sent: Span) -> Span | None:
        """How a record of a ring was received."""
        there = self._found.get(("receive", *_place(sent)), [])
        return next((span for span in there if span.end >= sent.start), None)


def _keys(span: Span) -> Iterator[tuple[Any, ...]]:
    yield (span.name,)
    yield (span.name, span.process)
    if "step" in span.args:
        yield (span.name, "step", span.args["step"])
    if "edge" in span.args:
        yield (span.name, "edge", span.args["edge"])
        yield (span.name, *_place(span))


def _place(span: Span) -> tuple[str, int]:
    return span.args["edge"], span.args["position"]


def last(spans: list[Span], until: int) -> Span | None:
    """The last one that begins by then; None where there is none."""
    place = bisect_right(spans, until, key=lambda span: span.start)
    return spans[place - 1] if place else None


def _span(event: Mapping[str, Any], processes: Mapping[int, str]) -> Span:
    start = round(event["ts"] * 1000)
    return Span(
        start, start + round(event["dur"] * 1000), processes[event["pid"]], event["name"], event["args"]
    )
