"""One core, one modelled device, and times that can be added up by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stretto.bench.virtual import Host, VirtualDevice, VirtualServer
from stretto.roles import messages as m
from stretto.roles.executor.sim.cost import StepSeconds, Work, fixed
from stretto.roles.executor.sim.script import Script
from stretto.roles.scheduler.core import Core
from stretto.roles.scheduler.limits import Limits

END = 2


def server(
    overlap: bool = True, seconds: StepSeconds | None = None, host: Host | None = None, length: int = 0
) -> VirtualServer:
    limits = Limits(
        pages=1000, page_size=4, max_seqs=4, max_batched_tokens=64, max_model_len=512, overlap=overlap
    )
    device = VirtualDevice(seconds or fixed(10), Script(512, (END,), length), slots=4, page_size=4)
    return VirtualServer(Core(limits), device, host or Host(plan=4, digest=3))


def request(uid: int, outputs: int, arrived: float = 0.0, prompt: int = 8, **more: Any) -> m.Request:
    ids = np.arange(prompt, dtype=np.int32) + uid
    return m.Request(uid, arrived, ids.tobytes(), outputs, (END,), m.Sampling(**more), m.Output(0, True))


def test_six_steps_in_turn_wait_for_the_host_each_time() -> None:
    played = server(overlap=False)
    played.play([request(1, 6)])
    assert played.now == 6 * (4 + 10 + 3)
    assert played._device.busy == 60
    assert played.answers[1].pieces == [17, 34, 51, 68, 85, 102]


def test_six_steps_one_ahead_hide_the_host_behind_the_device() -> None:
    played = server()
    played.play([request(1, 6)])
    assert played.now == 4 + 6 * 10 + 3
    assert played._device.busy == 60
    assert played.answers[1].pieces == [17, 27, 37, 47, 57, 67]


def test_a_host_that_is_slower_than_the_device_decides_the_pace() -> None:
    played = server(host=Host(plan=9, digest=6))
    played.play([request(1, 6)])
    assert played.answers[1].pieces == [25, 40, 55, 70, 85, 95]


@pytest.mark.parametrize(("outputs", "wasted"), [(8, 1), (220, 1)])
def test_a_stop_that_is_learnt_late_costs_one_token(outputs: int, wasted: int) -> None:
    played = server(length=outputs)
    played.play([request(1, 400)])
    counts = played._core.take_counts()
    assert (counts.generated_tokens, counts.wasted_tokens) == (outputs, wasted)
    assert played.answers[1].tokens == outputs


def test_a_length_or_planning_in_turn_wastes_none() -> None:
    for played, outputs in ((server(), 8), (server(overlap=False, length=8), 400)):
        played.play([request(1, outputs)])
        counts = played._core.take_counts()
        assert (counts.generated_tokens, counts.wasted_tokens) == (8, 0)


def test_requests_are_served_from_their_arrival() -> None:
    played = server(host=Host(0, 0))
    played.play([request(2, 2, arrived=105.0), request(1, 2)])
    assert played.answers[1].pieces == [10, 20]
    assert (played.answers[2].sent, played.answers[2].pieces) == (105.0, [115, 125])
    assert played.answers[2].ended == 125


def test_the_model_is_told_what_each_step_is() -> None:
    work: list[Work] = []

    def note(step: Work) -> float:
        work.append(step)
        return 1.0

    played = server(overlap=False, seconds=note, host=Host(0, 0))
    played.play([request(1, 2), request(10, 1, prompt=3)])
    assert work == [Work(11, 2, 11, 36 + 6), Work(1, 1, 9, 9)]
    assert (played._device.steps, played._device.rows) == (2, 3)


def test_what_can_never_fit_fails() -> None:
    played = server()
    played.play([request(1, 600)])
    assert "context" in played.answers[1].error


def test_the_tokens_are_those_of_the_simulated_device() -> None:
    device = VirtualDevice(fixed(1), Script(512, (END,)), slots=4, page_size=4)
    sampling = m.Sampling(temperature=1.0, seed=2**64 - 9)
    admit = m.Admit(3, 0, np.arange(1, dtype=np.int32).tobytes(), sampling, 2)
    chunks = np.array([3, 2, 1], np.int32).tobytes()
    device.queue(m.Plan(1, [admit], chunks=chunks, chunk_ids=bytes(8)), now=5.0)
    result = device.collect()
    said = Script(512, ())(np.array([2**64 - 9], np.uint64), np.array([2]), np.array([0]))
    assert result == m.Result(1, said.tobytes(), m.Clock(5.0, 5.0, 6.0, 5.0))
