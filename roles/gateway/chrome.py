"""A recording in Chrome's Trace Event Format, which Perfetto and chrome://tracing open.

Every role is a process of the trace, with its loop as the one thread; the device is another, with a thread
for each of its streams. Times are microseconds since the recording began. Arrows lead from a step's plan to
the device and on to the digestion of its result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from stretto.roles.trace import Label
from stretto.shm.trace import Record, Recording

ROLES = ("gateway", "tokenizer", "scheduler", "executor", "detokenizer")
"""From the door inwards and out again: the order of the tracks."""

Event = dict[str, Any]


class Span(NamedTuple):
    """A record with the words for it, in microseconds."""

    label: Label
    start: float
    duration: float
    args: dict[str, int | str]


def chrome(recordings: Mapping[str, Recording], other: dict[str, Any]) -> dict[str, Any]:
    """The trace of a recording, by process name; `other` goes with it unchanged."""
    events: list[Event] = []
    pid = 0
    for name in sorted(recordings, key=_place):
        tracks = _tracks(recordings[name])
        pid += 1
        events += _process(pid, name, ["loop"])
        events += [_event(pid, 1, span) for span in tracks.pop("", [])]
        if tracks:
            pid += 1
            events += _process(pid, f"device of {name}", list(tracks))
            for tid, spans in enumerate(tracks.values(), 1):
                events += [_event(pid, tid, span) for span in spans]
    return {"traceEvents": events + _arrows(events), "displayTimeUnit": "ms", "otherData": other}


def _place(name: str) -> tuple[int, str]:
    role = name.partition(".")[0]
    return (ROLES.index(role) if role in ROLES else len(ROLES)), name


def _tracks(recording: Recording) -> dict[str, list[Span]]:
    """Spans by track, in order of time, outer ones first; the role's own loop is ""."""
    labels = [Label.parse(text) for text in recording.labels]
    tracks: dict[str, list[Span]] = {"": []}
    for record in sorted(recording.records, key=lambda record: (record.start, -record.end)):
        if record.start >= recording.since:
            label = labels[record.label]
            tracks.setdefault(label.track, []).append(_span(label, record, recording.since))
    return tracks


def _span(label: Label, record: Record, since: int) -> Span:
    args: dict[str, int | str] = dict(zip(label.args, (record.a, record.b), strict=False))
    if label.edge:
        args["edge"] = label.edge
    return Span(label, (record.start - since) / 1000, (record.end - record.start) / 1000, args)


def _event(pid: int, tid: int, span: Span) -> Event:
    return {
        "ph": "X",
        "name": span.label.name,
        "pid": pid,
        "tid": tid,
        "ts": span.start,
        "dur": span.duration,
        "args": span.args,
    }


def _process(pid: int, name: str, threads: Iterable[str]) -> Iterator[Event]:
    """What names the tracks."""
    yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
    yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}
    for tid, thread in enumerate(threads, 1):
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": thread}}


# Arrows.


def _arrows(events: list[Event]) -> list[Event]:
    """From plan to step to digestion, for every step of which all three are there."""
    plans, steps, digests = (
        sorted((e for e in events if e["name"] == name and e["ph"] == "X"), key=lambda e: e["ts"])
        for name in ("plan", "step", "digest")
    )
    arrows: list[Event] = []
    # Steps are numbered anew when a scheduler or an executor is: the nearest of that number is meant.
    plan_of = _nearest(steps, plans, before=True)
    digest_of = _nearest(steps, digests, before=False)
    for number, (step, plan, digest) in enumerate(zip(steps, plan_of, digest_of, strict=True), 1):
        if plan is not None and digest is not None:
            arrows += [_arrow("s", number, plan), _arrow("t", number, step), _arrow("f", number, digest)]
    return arrows


def _nearest(steps: list[Event], others: list[Event], before: bool) -> list[Event | None]:
    """For each step the last event of its number that begins before it, or the first after it."""
    by_number: dict[int, list[Event]] = {}
    for event in others:
        by_number.setdefault(event["args"]["step"], []).append(event)
    found: list[Event | None] = []
    for step in steps:
        same = by_number.get(step["args"]["step"], [])
        near = [event for event in same if (event["ts"] <= step["ts"]) is before]
        found.append((near[-1] if before else near[0]) if near else None)
    return found


def _arrow(phase: str, number: int, at: Event) -> Event:
    """A point of an arrow, just inside of the span that it binds to."""
    place = {"pid": at["pid"], "tid": at["tid"], "ts": at["ts"] + 0.001}
    return {"ph": phase, "bp": "e", "cat": "step", "name": "step", "id": number, **place}
