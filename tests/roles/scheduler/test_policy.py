"""The order of the waiting queue."""

from __future__ import annotations

import numpy as np

from stretto.roles import messages as m
from stretto.roles.scheduler.policy import FirstCome
from stretto.roles.scheduler.sequence import Sequence, Waiting


def sequence(uid: int) -> Sequence:
    request = m.Request(uid, 0.0, b"\0\0\0\0", 1, (), m.Sampling(), m.Output(0, True))
    return Sequence(request, uid, 2, Waiting(np.zeros(1, np.int32)))


def test_first_come_first_served_but_the_retracted_before() -> None:
    queue = FirstCome()
    assert queue.head() is None
    old, young, first, second = map(sequence, range(4))
    queue.add(first)
    queue.add(second)
    queue.put_back(young)
    queue.put_back(old)
    assert queue.head() is old
    assert [waiting.uid for waiting in queue] == [0, 1, 2, 3]
    queue.remove(old)
    queue.remove(first)
    assert [waiting.uid for waiting in queue] == [1, 3]
    assert len(queue) == 2
