"""The order of the waiting queue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from stretto.roles import messages as m
from stretto.roles.scheduler.limits import Limits
from stretto.roles.scheduler.policy import Queue
from stretto.roles.scheduler.sequence import Sequence, Waiting
from stretto.tests.roles.scheduler.device import World

LIMITS = Limits(8, 4, max_seqs=2, max_batched_tokens=8, max_model_len=32, max_overtakes=3, shared_tokens=4)


def sequence(
    uid: int,
    prompt: tuple[int, ...] = (0,),
    *,
    ran: bool = False,
    priority: int = 0,
    leader: int | None = None,
) -> Sequence:
    tokens = np.array(prompt, np.int32)
    request = m.Request(
        uid, 0.0, tokens.tobytes(), 1, (), m.Sampling(), m.Output(0, True), leader=leader, priority=priority
    )
    return Sequence(request, uid, 99, Waiting(tokens), cached=0 if ran else None)


def fill(*sequences: Sequence, policy: str = "fcfs", known: dict[int, int] | None = None) -> Queue:
    """`known` tells by uid how many tokens the tree has; it may change later."""
    queue = Queue(replace(LIMITS, policy=policy), lambda waiting: (known or {}).get(waiting.uid, 0))
    for waiting in sequences:
        queue.add(waiting)
    return queue


def take(queue: Queue) -> int:
    head = queue.head()
    assert head is not None
    queue.admit(head)
    return head.uid


def drain(queue: Queue) -> list[int]:
    return [take(queue) for _ in range(len(queue) - len(list(queue.held)))]


def test_who_waits_for_the_disk_is_in_nobodys_way_and_comes_back_to_its_place() -> None:
    first, second, third = sequence(1), sequence(2), sequence(3)
    queue = fill(first, second, third)
    queue.park(first)
    assert (len(queue), sorted(waiting.uid for waiting in queue), list(queue.held)) == (3, [1, 2, 3], [])
    assert take(queue) == 2
    queue.unpark()
    assert take(queue) == 1
    queue.park(third)
    queue.remove(third)
    queue.unpark()
    assert (queue.head(), len(queue)) == (None, 0)


def test_first_come_first_served_but_those_that_ran_before() -> None:
    assert fill().head() is None
    queue = fill(sequence(2), sequence(3), sequence(1, ran=True), sequence(0, ran=True))
    assert [waiting.uid for waiting in queue] == [0, 1, 2, 3]
    assert len(queue) == 4
    assert drain(queue) == [0, 1, 2, 3]


@pytest.mark.parametrize("policy", ["priority", "prefix"])
def test_lower_priorities_go_first_even_before_those_that_ran(policy: str) -> None:
    waiting = sequence(1), sequence(2, priority=-5), sequence(3, ran=True), sequence(4, priority=-5)
    assert drain(fill(*waiting, policy=policy)) == [2, 4, 3, 1]


def test_first_come_first_served_looks_at_no_priority() -> None:
    assert drain(fill(sequence(1), sequence(2, priority=-5))) == [1, 2]


def test_a_follower_is_held_out_of_the_way_and_then_takes_its_place() -> None:
    leader = sequence(1)
    queue = fill(leader, sequence(9))
    followers = [sequence(uid, leader=1) for uid in (2, 3, 4)]
    for follower in followers:
        queue.hold(follower, 1)
    assert [waiting.uid for waiting in queue] == [1, 9, 2, 3, 4]
    assert list(queue.held) == [(follower, 1) for follower in followers]
    queue.remove(followers[1])
    queue.release(leader)
    queue.release(leader)
    assert [waiting.uid for waiting in queue] == [1, 2, 4, 9]
    assert list(queue.held) == []


def test_what_does_not_wait_cannot_be_removed() -> None:
    queue = fill(sequence(1))
    with pytest.raises(AssertionError, match="request 2 is not in the queue"):
        queue.remove(sequence(2))


# Longest prefix first.


def test_the_longest_known_prefix_goes_first_and_then_the_oldest() -> None:
    waiting = [sequence(uid, tuple(range(9))) for uid in range(4)]
    assert drain(fill(*waiting, policy="prefix", known={1: 2, 2: 5, 3: 5})) == [2, 3, 1, 0]


def test_what_is_published_lifts_those_that_share_it_and_no_others() -> None:
    known: dict[int, int] = {}
    first, other = sequence(1, (1, 2, 3)), sequence(2, (7, 7, 7))
    near, far = sequence(3, (1, 9)), sequence(4, (1, 2, 5))
    queue = fill(first, other, near, far, policy="prefix", known=known)
    assert take(queue) == 1
    known.update({3: 1, 4: 2})
    queue.publish(first)
    assert drain(queue) == [4, 3, 2]


def test_what_was_evicted_is_noticed_when_it_comes_up() -> None:
    known = {2: 3, 3: 2}
    queue = fill(*(sequence(uid, (1, 2, 3, 4)) for uid in (1, 2, 3)), policy="prefix", known=known)
    known[2] = 1
    assert drain(queue) == [3, 2, 1]


def test_nobody_is_overtaken_by_more_than_the_bound() -> None:
    known: dict[int, int] = {}
    queue = fill(sequence(0), sequence(1), policy="prefix", known=known)
    order = []
    for uid in range(2, 12):  # each has more in the cache than all before it
        known[uid] = uid
        queue.add(sequence(uid, tuple(range(12))))
        order.append(take(queue))
    assert order == [2, 3, 4, 0, 1, 7, 8, 9, 5, 6]
    assert drain(queue) == [11, 10]


def test_those_that_ran_before_count_for_nobody() -> None:
    queue = fill(sequence(0), policy="prefix")
    for uid in range(1, 6):
        queue.add(sequence(uid, ran=True))
        assert take(queue) == uid
    late = sequence(9, (1, 2, 3))
    queue._known = lambda waiting: 2 if waiting is late else 0
    queue.add(late)
    assert take(queue) == 9


# Prefixes under way.

SHARED = (1, 2, 3, 4, 5)


def test_who_shares_a_prefix_under_way_steps_aside_until_it_is_there() -> None:
    first, second, other = sequence(1, (*SHARED, 6)), sequence(2, (*SHARED, 7)), sequence(3, (9, 9, 9, 9))
    queue = fill(first, second, other)
    take(queue)
    assert queue.step_aside(second)
    assert list(queue.held) == [(second, 1)]
    assert not queue.step_aside(other)
    assert take(queue) == 3
    queue.publish(first)
    assert not queue.step_aside(second)
    assert take(queue) == 2


@pytest.mark.parametrize("leave", [Queue.release, Queue.interrupt])
def test_who_waits_for_a_prefix_goes_on_when_nobody_computes_it(
    leave: Callable[[Queue, Sequence], None],
) -> None:
    first, second = sequence(1, SHARED), sequence(2, SHARED)
    queue = fill(first, second)
    take(queue)
    queue.step_aside(second)
    leave(queue, first)
    assert not queue.step_aside(second)
    assert drain(queue) == [2]


def test_nobody_waits_for_a_short_prefix_or_one_that_is_known() -> None:
    first, short, known = sequence(1, SHARED), sequence(2, (1, 2, 3, 9)), sequence(3, SHARED)
    queue = fill(first, short, known, known={3: 2})
    take(queue)
    assert not queue.step_aside(short)
    assert not queue.step_aside(known)


def test_nobody_waits_for_a_prefix_of_another_salt() -> None:
    world = World(shared_tokens=4, max_seqs=3, max_batched_tokens=64)
    prompt = list(range(20))
    for salt in ("ours", "theirs", "ours"):
        world.submit(prompt, cache_salt=salt)
    world.plan()
    assert (world.core.running, world.core.waiting) == (2, 1)


def test_a_cold_prefix_is_computed_once_however_many_ask_for_it() -> None:
    world = World(pages=200, page_size=16, max_seqs=32, max_batched_tokens=256, max_model_len=1100)
    prefix = [number % 97 for number in range(1000)]
    uids = [world.submit([*prefix, 100 + last, 7], max_tokens=3) for last in range(32)]
    world.drain()
    computed = sum(len(plan.chunk_ids) // 4 for plan in world.plans)
    assert computed == 1002 + 31 * 2
    for uid in uids:
        assert world.output(uid) == world.expect(uid)


def test_those_that_wait_for_a_prefix_are_released_by_its_abort() -> None:
    world = World(shared_tokens=4, max_batched_tokens=64)
    prompt = list(range(20))
    first, *others = (world.submit(prompt, max_tokens=2) for _ in range(3))
    world.plan()
    assert world.core.waiting == 2
    world.abort(first)
    world.core.check()
    world.plan()
    assert world.core.running == 2  # the aborted one, and the next that computes it
    world.drain()
    for uid in others:
        assert world.output(uid) == world.expect(uid)
