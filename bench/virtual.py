"""The real scheduler on a modelled device, in virtual time: no process, no clock, the same result every time.

The host is one thread, as the scheduler's role is: it digests results first, then plans as far ahead as the
core allows, and each of the two takes it a while. The device runs its steps in order, each as soon as it has
been queued and the one before it has ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from stretto.bench.answer import Answer, Usage
from stretto.roles import messages as m
from stretto.roles.executor.sim.cost import StepSeconds, work_of
from stretto.roles.scheduler.core import Core

Says = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""Tokens of rows with these seeds, at these positions, after so many tokens of output."""


class Step(NamedTuple):
    """A step on the device, in seconds of virtual time."""

    queued: float
    started: float
    ended: float
    sequences: int
    result: m.Result


class VirtualDevice:
    """Runs plans: `seconds` is how long a step takes, `script` what its rows say."""

    def __init__(self, seconds: StepSeconds, script: Says, slots: int, page_size: int) -> None:
        self.busy = 0.0
        """Seconds spent in steps."""
        self.rows = self.steps = 0
        """Sequences over all steps, and how many steps there were."""
        self._seconds, self._script, self._page_size = seconds, script, page_size
        self._lengths, self._prompts = np.zeros(slots, np.int64), np.zeros(slots, np.int64)
        self._seeds = np.zeros(slots, np.uint64)
        self._ended = 0.0
        self._flights: deque[Step] = deque()

    @property
    def next_end(self) -> float | None:
        """When the oldest step that has not been collected ends; None where there is none."""
        return self._flights[0].ended if self._flights else None

    def queue(self, plan: m.Plan, now: float) -> None:
        """Take the next plan."""
        for admit in plan.admits:
            self._lengths[admit.slot], self._prompts[admit.slot] = admit.length, admit.prompt_length
            self._seeds[admit.slot] = admit.sampling.seed if admit.sampling.temperature else 0
        chunks = np.frombuffer(plan.chunks, np.int32).reshape(-1, 3)
        decodes = np.frombuffer(plan.decodes, np.int32)
        slots = np.concatenate([chunks[:, 0], decodes])
        counts = np.concatenate([chunks[:, 1], np.ones_like(decodes)]).astype(np.int64)
        self._lengths[slots] += counts
        sampled = slots[np.concatenate([chunks[:, 2] != 0, np.ones(len(decodes), bool)])]
        copied = len(plan.copies) // 8 * self._page_size
        took = self._seconds(work_of(counts, self._lengths[slots], len(sampled), copied))
        self._run(plan.step, len(slots), self._say(sampled), now, took)

    def _say(self, slots: np.ndarray) -> bytes:
        places = self._lengths[slots]
        return self._script(self._seeds[slots], places, places - self._prompts[slots]).tobytes()

    def _run(self, number: int, sequences: int, tokens: bytes, now: float, took: float) -> None:
        started = max(now, self._ended)
        idle, self._ended = started - self._ended, started + took
        result = m.Result(number, tokens, m.Clock(now, started, self._ended, idle))
        self._flights.append(Step(now, started, self._ended, sequences, result))
        self.busy += took
        self.rows += sequences
        self.steps += 1

    def collect(self) -> m.Result:
        """The result of the oldest step."""
        return self._flights.popleft().result


class Host(NamedTuple):
    """Seconds that the host takes for a step."""

    plan: float
    """To write its plan and bring it to the device."""
    digest: float
    """To fetch its result and take it in."""


class VirtualServer:
    """Plays requests through a core and a device. `answers` are what clients would note, by uid; the times
    are those at which the scheduler has a token.
    """

    def __init__(self, core: Core, device: VirtualDevice, host: Host) -> None:
        self.now = 0.0
        self.answers: dict[int, Answer] = {}
        self._core, self._device, self._host = core, device, host
        self._coming: deque[m.Request] = deque()

    def play(self, requests: Iterable[m.Request]) -> None:
        """Serve requests from their arrival, `Request.arrived`, to their end."""
        self._coming.extend(sorted(requests, key=lambda request: request.arrived))
        while self._coming or self._core.busy:
            self._arrive()
            if self._coming or self._core.busy:  # what is refused leaves nothing to do
                self._act()
            self._deliver()

    def _arrive(self) -> None:
        while self._coming and self._coming[0].arrived <= self.now:
            request = self._coming.popleft()
            self.answers[request.uid] = Answer(sent=request.arrived)
            self._core.submit([request])

    def _act(self) -> None:
        """Digest a result, or write a plan, or else let time pass until something comes."""
        end = self._device.next_end
        if end is not None and end <= self.now:
            self._core.advance(self._device.collect())
            self.now += self._host.digest
        elif (plan := self._core.next_plan()) is not None:
            self.now += self._host.plan
            self._device.queue(plan, self.now)
        else:
            arrival = self._coming[0].arrived if self._coming else None
            self.now = min(moment for moment in (end, arrival) if moment is not None)

    def _deliver(self) -> None:
        for _, message in self._core.take():
            for opened in message.opens:
                self.answers[opened.uid].usage = Usage(opened.prompt_tokens, 0)
            for uid in np.frombuffer(message.uids, np.int64).tolist():
                self.answers[uid].pieces.append(self.now)
            for end in message.ends:
                self._end(self.answers[end.uid], end)

    def _end(self, answer: Answer, end: m.End) -> None:
        prompt = answer.usage.prompt_tokens if answer.usage else 0
        answer.usage, answer.ended = Usage(prompt, len(answer.pieces)), self.now
        answer.error = end.fault.message if end.fault else ""
