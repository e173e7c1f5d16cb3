"""How many may wait, and what one too many is told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stretto.roles.gateway.faults import Refused
from stretto.roles.gateway.job import Job
from stretto.roles.gateway.queue import Queue, estimate
from stretto.roles.gateway.stream import Inbox, Stream
from stretto.roles.messages import SamplingParams
from stretto.roles.metrics import Meter
from stretto.tests.roles.gateway.house import House, silence

JOB = Job(params=SamplingParams(), prompts=([1] * 10,))


def meter() -> Meter:
    return Meter("gateway", memoryview(bytearray(8 * 128)).cast("d"))


def stream(uid: int) -> Stream:
    return Stream(uid, JOB, Inbox(), 0.0)


def test_prompts_are_estimated() -> None:
    params = SamplingParams()
    assert estimate(JOB) == 10
    assert estimate(Job(params=params, prompts=("x" * 40, [1, 2]))) == 13
    assert estimate(Job(params=params, messages=[{"content": "x" * 40}, {"content": "x" * 4}])) == 12


def test_all_gateways_count_together() -> None:
    ours, theirs = meter(), meter()
    queues = [Queue(one, [ours, theirs], running=1, requests=2) for one in (ours, theirs)]
    for uid in range(3):
        queues[uid % 2].check(JOB, 0.0)
        queues[uid % 2].enter(stream(uid))
    for queue in queues:
        with pytest.raises(Refused) as refused:
            queue.check(JOB, 0.0)
        assert (refused.value.fault.status, refused.value.fault.code) == (429, "queue_full")
    queues[0].leave(stream(0), 1.0)
    queues[0].leave(stream(0), 1.0)
    queues[1].check(JOB, 1.0)
    assert (ours.value("requests_queued"), ours.value("tokens_queued")) == (1, 10)
    assert ours.value("requests_refused_total") == 1


def test_tokens_are_bounded_too_but_an_empty_queue_takes_any() -> None:
    queue = Queue(meter(), tokens=15)
    queue.check(Job(params=SamplingParams(), prompts=([1] * 100,)), 0.0)
    queue.enter(stream(1))
    with pytest.raises(Refused):
        queue.check(JOB, 0.0)


def test_who_is_refused_hears_when_a_tenth_will_have_left() -> None:
    queue = Queue(meter(), requests=1000)
    for uid in range(1050):
        queue.enter(stream(uid))
    for uid in range(50):
        queue.leave(stream(uid), uid * 0.5)
    with pytest.raises(Refused) as refused:
        queue.check(JOB, 25.0)
    assert refused.value.fault.retry_after == 50


def test_one_too_many_gets_429_before_any_work(build: Callable[..., House]) -> None:
    house = build(max_queued_requests=1)
    house.back.script = silence
    house.call(house.door.submit, JOB, Inbox())
    answer = house.chat()
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "queue_full")
    assert answer.headers["retry-after"] == "1"
