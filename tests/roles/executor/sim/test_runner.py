from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from clock import Clock

from stretto.roles import messages as m
from stretto.roles.executor import device_sim
from stretto.roles.executor.device_sim import SimDevice
from stretto.roles.executor.kv import PageShape
from stretto.roles.executor.sim.cost import Work
from stretto.roles.executor.sim.runner import Absent, SimulatedRunner
from stretto.roles.executor.sim.script import Script

END = 2
SCRIPT = Script(512, (END,), length=3)


def ints(*values: Any) -> bytes:
    return np.array(values, np.int32).tobytes()


class Bench:
    """A runner of two slots with pages of four tokens, and the work that its steps were charged for."""

    def __init__(self) -> None:
        self.work: list[Work] = []
        self._landed, self._launched = threading.Event(), threading.Event()
        shape = PageShape(32, 4, 8, 128, torch.bfloat16)
        self.runner = SimulatedRunner(
            seconds=self._seconds,
            script=SCRIPT,
            device=SimDevice(self._landed.set, "simulated", 0),
            model=Absent(512, 32, 8, 128, torch.bfloat16, torch.bfloat16),
            cache=shape.allocate(50_000, torch.device("meta")),
            slots=2,
            pages_per_slot=8,
            wake=self._landed.set,
        )

    def _seconds(self, work: Work) -> float:
        self._launched.wait()
        self.work.append(work)
        return 0.0625

    def run(self, *plans: m.Plan) -> list[m.Result]:
        """The results of plans that are all launched before the first of them is over."""
        self._launched.clear()
        for plan in plans:
            self.runner.launch(plan)
        self._launched.set()
        results: list[m.Result] = []
        while len(results) < len(plans):
            self._landed.wait()
            self._landed.clear()
            results += self.runner.collect()
        return results


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(device_sim, "time", Clock())
    bench = Bench()
    yield bench
    bench.runner.close()


def admit(slot: int, prompt: list[int], sampling: m.Sampling, step: int = 1, **more: Any) -> m.Plan:
    history = ints(*prompt) if sampling.controls else b""
    return m.Plan(
        step=step,
        admits=[m.Admit(slot, 0, ints(slot * 3, slot * 3 + 1), sampling, len(prompt), history)],
        chunks=ints(slot, len(prompt), 1),
        chunk_ids=ints(*prompt),
        **more,
    )


def decode(step: int, *slots: int) -> m.Plan:
    return m.Plan(step=step, decodes=ints(*slots))


def said(seed: int, position: int, output: int = 0) -> int:
    return int(SCRIPT(np.array([seed], np.uint64), np.array([position]), np.array([output]))[0])


def tokens(results: list[m.Result]) -> list[list[int]]:
    return [np.frombuffer(result.tokens, np.int32).tolist() for result in results]


def test_steps_say_the_script_up_to_its_end(bench: Bench) -> None:
    seed = 2**64 - 5
    results = bench.run(admit(0, [7, 8, 9], m.Sampling(temperature=1.0, seed=seed)), decode(2, 0))
    results += bench.run(decode(3, 0))
    assert tokens(results) == [[said(seed, 3)], [said(seed, 4, 1)], [END]]


def test_greedy_sequences_say_the_same_whatever_their_seeds(bench: Bench) -> None:
    first = bench.run(admit(0, [7], m.Sampling(seed=1)))
    second = bench.run(admit(1, [8], m.Sampling(seed=2), step=2))
    assert tokens(first) == tokens(second) == [[said(0, 1)]]


def test_the_model_is_told_what_each_step_is(bench: Bench) -> None:
    bench.run(admit(0, [7, 8, 9], m.Sampling()))
    bench.run(admit(1, [4, 5], m.Sampling(), step=2, decodes=ints(0), copies=ints(0, 9)))
    assert bench.work == [Work(3, 1, 3, 6, 0), Work(3, 2, 6, 1 + 2 + 4, 4)]


def test_steps_take_the_modelled_time_and_leave_no_gap(bench: Bench) -> None:
    first, second = (r.clock for r in bench.run(admit(0, [7], m.Sampling()), decode(2, 0)))
    assert (first.started, first.ended, first.idle) == (0.0, 0.0625, 0.0)
    assert (second.started, second.ended, second.idle) == (0.0625, 0.125, 0.0)


def test_the_pool_has_no_memory(bench: Bench) -> None:
    assert bench.runner._cache.keys.shape == (32, 50_000, 4, 8, 128)
    assert bench.runner._cache.keys.is_meta


def test_log_probabilities_are_those_of_a_script_without_doubt(bench: Bench) -> None:
    sampling = m.Sampling(logprobs=1, prompt_logprobs=0)
    (result,) = bench.run(admit(0, [said(0, 0), said(0, 1), 9], sampling, scored=ints(0, -1)))
    (row,) = result.logprobs
    assert tokens([result]) == [[said(0, 3)]]
    assert (row.logprob, row.rank) == (0.0, 1)
    assert np.frombuffer(row.top_ids, np.int32).tolist() == [said(0, 3)]
    (chunk,) = result.prompt_logprobs
    assert np.frombuffer(chunk.ranks, np.int32)[0] == 1
    assert math.isclose(np.frombuffer(chunk.logprobs, np.float32)[0], 0.0)
    assert np.frombuffer(chunk.logprobs, np.float32)[1] < -1e8


def test_controls_rule_over_the_script(bench: Bench) -> None:
    sampling = m.Sampling(controls=m.Controls(allowed_ids=ints(5)))
    results = bench.run(admit(0, [7], sampling), decode(2, 0))
    assert tokens(results) == [[5], [5]]
