"""What of the runner is worth a span in a recording, and the device's own time, by the results' clocks."""

from __future__ import annotations

from stretto.roles import messages as m
from stretto.roles.executor.runner import Runner, Step
from stretto.roles.trace import Function, Label, Probe, span
from stretto.shm.trace import Section

QUEUED = (Label("queued", ("step",), "queue, even steps"), Label("queued", ("step",), "queue, odd steps"))
"""From the plan's launch until the device begins with it. Two steps may wait at once, but never more."""
STEP = Label("step", ("step", "idle_ns"), "compute")
"""What the device computes, and how long it waited before although there was work."""
COPY = Label("copy", ("step",), "copy")
"""From the end of the computation until its results are with the host."""


def _follow_device(section: Section, result_of: Function) -> Function:
    *queued, computed, copied = (section.label(label.text()) for label in (*QUEUED, STEP, COPY))

    def traced(self: Runner, step: Step) -> m.Result:
        result: m.Result = result_of(self, step)
        clock, number = result.clock, step.number
        started, ended = _ns(clock.started), _ns(clock.ended)
        section.record(queued[number % 2], _ns(clock.queued), started, number)
        section.record(computed, started, ended, number, _ns(clock.idle))
        section.record(copied, ended, _ns(step.landed.time), number)
        return result

    return traced


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


PROBES = (
    span(Runner, "launch", "launch", ("step",), lambda _, runner, plan: (plan.step,)),
    span(Runner, "collect", "collect", ("results",), lambda results, _: (len(results),) if results else None),
    Probe(Runner, "_result", _follow_device),
)
