"""Where the device's idle time came from: in each gap, how long the next step was in whose hands.

A step goes through stages, from the result that made room for it to its beginning on the device. A gap is cut
at the ends of the stages, so that each moment of it belongs to the stage that the next step was in. Moments
that no span tells of belong to the stage after them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from stretto.roles.client.profile_spans import Span, Spans, last

TO_SCHEDULER, TO_EXECUTOR = "executor.0>scheduler.0", "scheduler.0>executor.0"

STAGES = {
    "result to host": "device",
    "collect": "executor",
    "result in ring": "ring",
    "digest": "scheduler",
    "plan": "scheduler",
    "encode": "scheduler",
    "plan in ring": "ring",
    "before launch": "executor",
    "launch": "executor",
    "start": "device",
}
"""In order, and who has the step in hands."""


class Cause(NamedTuple):
    """What one stage cost."""

    stage: str
    gaps: int
    """In so many it was the longest part."""
    total: int
    """Nanoseconds, over all gaps."""
    worst: int
    """In one gap."""

    @property
    def role(self) -> str:
        """Who was late."""
        return STAGES[self.stage]


def causes(spans: Spans) -> list[Cause]:
    """Stages that the device waited for, the costliest first."""
    parts = [_parts(spans, step) for step in spans.named("step") if step.args["idle_ns"] > 0]
    longest = [max(part, key=lambda stage: part[stage]) for part in parts if part]
    found = []
    for stage in STAGES:
        lengths = [part[stage] for part in parts if stage in part]
        if lengths:
            found.append(Cause(stage, longest.count(stage), sum(lengths), max(lengths)))
    return sorted(found, key=lambda cause: -cause.total)


def _parts(spans: Spans, step: Span) -> dict[str, int]:
    """The gap before a step, in nanoseconds by stage."""
    parts: dict[str, int] = {}
    now = step.start - step.args["idle_ns"]
    for stage, end in _ends(spans, step):
        if min(end, step.start) > now:
            parts[stage] = min(end, step.start) - now
            now = min(end, step.start)
    return parts


def _ends(spans: Spans, step: Span) -> Iterator[tuple[str, int]]:
    """When the step left each stage; stages without a span are left out, "start" never is."""
    number = step.args["step"]
    plan = spans.of_step("plan", number, step.start)
    launch = spans.of_step("launch", number, step.start)
    if plan is not None:
        yield from _before_plan(spans, plan)
        yield "plan", plan.end
    if plan is not None and launch is not None:
        yield from _under_way(spans, plan, launch)
    if launch is not None:
        yield "before launch", launch.start
        queued = spans.of_step("queued", number, step.start)
        yield "launch", launch.end if queued is None else queued.start
    yield "start", step.start


def _before_plan(spans: Spans, plan: Span) -> Iterator[tuple[str, int]]:
    """From the device's end of the step whose result was digested just before."""
    digest = last(spans.named("digest"), plan.start)
    if digest is None:
        return
    copy = spans.of_step("copy", digest.args["step"], digest.start)
    if copy is not None:
        yield "result to host", copy.end
    received = last(spans.of_ring("receive", TO_SCHEDULER), digest.start)
    if received is not None:
        sent = spans.sent(received)
        if sent is not None:
            yield "collect", sent.start
        yield "result in ring", received.end
    yield "digest", plan.start


def _under_way(spans: Spans, plan: Span, launch: Span) -> Iterator[tuple[str, int]]:
    """From the scheduler's hands into the executor's."""
    encode = spans.of_step("encode", plan.args["step"], launch.start)
    if encode is None:
        return
    sent = last(spans.of_ring("send", TO_EXECUTOR), encode.end)
    if sent is not None and sent.start >= encode.start:
        yield "encode", sent.start
        received = spans.received(sent)
        if received is not None:
            yield "plan in ring", received.end
