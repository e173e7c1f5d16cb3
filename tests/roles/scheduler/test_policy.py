"""The order of the waiting queue."""

from __future__ import annotations

import numpy as np
import pytest

from stretto.roles import messages as m
from stretto.roles.scheduler.policy import Queue
from stretto.roles.scheduler.sequence import Sequence, Waiting


def sequence(uid: int, *, ran: bool = False, priority: int = 0, leader: int | None = None) -> Sequence:
    request = m.Request(
        uid, 0.0, b"\0\0\0\0", 1, (), m.Sampling(), m.Output(0, True), leader=leader, priority=priority
    )
    return Sequence(request, uid, 2, Waiting(np.zeros(1, np.int32)), cached=0 if ran else None)


def fill(*sequences: Sequence) -> Queue:
    queue = Queue()
    for waiting in sequences:
        queue.add(waiting)
    return queue


def order(queue: Queue) -> list[int]:
    return [waiting.uid for waiting in queue]


def test_first_come_first_served_but_those_that_ran_before() -> None:
    old, young, first, second = sequence(0, ran=True), sequence(1, ran=True), sequence(2), sequence(3)
    assert Queue().head() is None
    queue = fill(first, second, young, old)
    assert queue.head() is old
    assert order(queue) == [0, 1, 2, 3]
    queue.remove(old)
    queue.remove(first)
    assert order(queue) == [1, 3]
    assert len(queue) == 2


def test_lower_priorities_go_first_even_before_those_that_ran() -> None:
    queue = fill(sequence(1), sequence(2, priority=-5), sequence(3, ran=True), sequence(4, priority=-5))
    assert order(queue) == [2, 4, 3, 1]


def test_a_follower_is_held_out_of_the_way_and_then_takes_its_place() -> None:
    queue = fill(sequence(1), sequence(9))
    followers = [sequence(uid, leader=1) for uid in (2, 3, 4)]
    for follower in followers:
        queue.hold(follower)
    assert order(queue) == [1, 9, 2, 3, 4]
    assert (len(queue), queue.held) == (5, followers)
    queue.remove(followers[1])
    queue.release(1)
    queue.release(1)
    assert order(queue) == [1, 2, 4, 9]
    assert queue.held == []
    queue.remove(followers[0])
    assert order(queue) == [1, 4, 9]


def test_what_does_not_wait_cannot_be_removed() -> None:
    queue = fill(sequence(1))
    with pytest.raises(AssertionError, match="request 2 is not in the queue"):
        queue.remove(sequence(2))
