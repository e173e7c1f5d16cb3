"""Traces as `POST /stop_profile` gives them, written down span by span."""

from __future__ import annotations

from typing import Any

PROCESSES = ("scheduler.0", "executor.0", "device of executor.0")
TO_EXECUTOR, TO_SCHEDULER = "scheduler.0>executor.0", "executor.0>scheduler.0"

Told = tuple[str, str, int, int, dict[str, Any]]


def span(process: str, name: str, start: int, end: int, **args: Any) -> Told:
    """From start to end, in nanoseconds."""
    return process, name, start, end, args


def scheduler(name: str, start: int, end: int, **args: Any) -> Told:
    return span("scheduler.0", name, start, end, **args)


def executor(name: str, start: int, end: int, **args: Any) -> Told:
    return span("executor.0", name, start, end, **args)


def device(name: str, start: int, end: int, step: int, **args: Any) -> Told:
    return span("device of executor.0", name, start, end, step=step, **args)


def trace(*told: Told, **other: Any) -> dict[str, Any]:
    """The trace of these spans; `other` goes over the default `otherData`."""
    names = dict.fromkeys([*PROCESSES, *(process for process, *_ in told)])
    pids = {name: pid for pid, name in enumerate(names, 1)}
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}} for name, pid in pids.items()
    ]
    for process, name, start, end, args in told:
        times = {"ts": start / 1000, "dur": (end - start) / 1000}
        events.append({"ph": "X", "name": name, "pid": pids[process], "tid": 1, **times, "args": args})
    defaults = {"version": "1", "seconds": 0.001, "dropped": {}, "counters": {}}
    return {"traceEvents": events, "otherData": {**defaults, **other}}


LATE = (
    # Step 1 ends at 1000; its result makes room for step 2, which begins at 2000.
    device("step", 0, 1000, 1, idle_ns=0),
    device("copy", 1000, 1010, 1),
    executor("collect", 1030, 1050, results=1),
    executor("send", 1060, 1070, edge=TO_SCHEDULER, position=64),
    scheduler("receive", 1150, 1160, edge=TO_SCHEDULER, position=64),
    scheduler("digest", 1170, 1200, step=1),
    scheduler("plan", 1260, 1560, step=2),
    scheduler("encode", 1560, 1640, step=2),
    scheduler("send", 1600, 1630, edge=TO_EXECUTOR, position=128),
    executor("receive", 1690, 1700, edge=TO_EXECUTOR, position=128),
    executor("launch", 1740, 1960, step=2),
    device("queued", 1930, 2000, 2),
    device("step", 2000, 3000, 2, idle_ns=1000),
)
"""One gap, in which every stage has a part."""
