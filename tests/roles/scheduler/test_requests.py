"""How requests come, wait and end: refusals, choices, priorities, deadlines, aborts, replays."""

from __future__ import annotations

from typing import Any

import pytest

from stretto.roles import messages as m
from stretto.tests.roles.scheduler.device import World, ints, rows

# Refusals.


def test_a_request_beyond_the_pool_is_refused_with_both_numbers() -> None:
    world = World(pages=4, page_size=4)
    uid = world.submit(list(range(10)), max_tokens=7)
    assert world.end(uid).reason == "error"
    assert world.fault(uid).status == 400
    assert "need 5 KV pages, but the pool has 4" in world.fault(uid).message
    other = world.submit(list(range(10)), max_tokens=6)
    world.drain()
    assert world.output(other) == world.expect(other)


def test_a_request_beyond_the_context_is_refused_with_both_numbers() -> None:
    world = World(max_model_len=16)
    fault = world.fault(world.submit(list(range(16)), max_tokens=None))
    assert fault.code == "context_length_exceeded"
    assert "need 17 tokens of context, but the context is 16 tokens" in fault.message


# Choices.


def fork(world: World, prompt: list[int], choices: int, **fields: Any) -> list[int]:
    leader = world.submit(prompt, seed=0, **fields)
    return [leader, *(world.submit(prompt, seed=i, leader=leader, **fields) for i in range(1, choices))]


@pytest.mark.parametrize("cache", [True, False])
def test_choices_share_the_prompt_by_the_textbook(cache: bool) -> None:
    world = World(pages=100, page_size=16, max_batched_tokens=64, max_model_len=256, prefix_cache=cache)
    uids = fork(world, list(range(100)), 4, max_tokens=50)
    owned = 0
    while world.core.busy:
        world.turn()
        owned = max(owned, world.core.pages[2])
    for uid in uids:
        assert world.output(uid) == world.expect(uid)
    assert owned == 22
    assert sum(len(rows(plan.copies, 2)) for plan in world.plans) == 3
    assert sum(count for plan in world.plans for _, count, _ in rows(plan.chunks, 3)) == 103
    assert [world.end(uid).cached_tokens for uid in uids] == [0, 99, 99, 99]
    assert (world.core._requests.counts.prompt_tokens, world.core._requests.counts.cached_tokens) == (100, 0)


def test_without_prefix_cache_others_do_not_share_what_choices_left() -> None:
    world = World(prefix_cache=False)
    fork(world, [1, 2, 3, 4, 5], 3, max_tokens=2)
    world.drain()
    uid = world.submit([1, 2, 3, 4, 5], max_tokens=2)
    world.drain()
    assert world.end(uid).cached_tokens == 0


def test_a_long_prompt_is_stored_once() -> None:
    world = World(pages=100, page_size=16, max_batched_tokens=2048, max_model_len=2048)
    fork(world, list(range(1000)), 4, max_tokens=1)
    world.drain()
    _, cached, owned = world.core.pages
    assert (cached, owned) == (63, 0)
    assert sum(len(ints(plan.chunk_ids)) for plan in world.plans) == 1003


def test_followers_wait_for_their_leader_and_block_nobody() -> None:
    world = World(max_batched_tokens=8, max_seqs=2)
    uids = fork(world, list(range(30)), 3, max_tokens=2)
    other = world.submit([1, 2, 3], max_tokens=1)
    while world.streams[other].end is None:
        world.turn()
        world.core.check()
    assert [world.streams[uid].tokens for uid in uids[1:]] == [[], []]
    world.drain()
    for uid in (*uids, other):
        assert world.output(uid) == world.expect(uid)


def test_followers_go_on_alone_when_their_leader_is_gone() -> None:
    world = World(max_batched_tokens=8)
    leader, *followers = fork(world, list(range(30)), 3, max_tokens=2)
    world.turn()
    world.abort(leader)
    world.core.check()
    world.drain()
    late = world.submit(list(range(30)), max_tokens=2, leader=leader)
    world.drain()
    for uid in (*followers, late):
        assert world.output(uid) == world.expect(uid)


def test_choices_of_a_request_that_is_refused_are_refused_each() -> None:
    world = World(max_model_len=16)
    uids = fork(world, list(range(16)), 2, max_tokens=3)
    assert [world.fault(uid).code for uid in uids] == ["context_length_exceeded"] * 2


def test_followers_share_again_after_the_device_was_lost() -> None:
    world = World(pages=100, max_batched_tokens=64)
    uids = fork(world, list(range(30)), 4, max_tokens=6)
    for _ in range(3):
        world.turn()
    world.restart()
    world.core.check()
    assert world.core.waiting == 4
    world.drain()
    for uid in uids:
        assert world.output(uid) == world.expect(uid)
    since = [plan for plan in world.plans if plan.step == 1][-1]
    assert len(rows(since.chunks, 3)) == 1


# Priorities and deadlines.


def test_lower_priorities_are_served_first() -> None:
    world = World(max_seqs=1)
    world.submit([1, 2], seed=1)
    world.plan()
    for seed, priority in ((2, 5), (3, 0), (4, -1), (5, 0)):
        world.submit([1, 2, seed], seed=seed, priority=priority)
    world.drain()
    assert [admit.sampling.seed for plan in world.plans for admit in plan.admits] == [1, 4, 3, 5, 2]


def test_the_lowest_rank_is_retracted() -> None:
    world = World(pages=6, page_size=4, max_seqs=2).optimistic()
    world.submit([1, 2, 3, 4], max_tokens=16, seed=1, priority=1)
    world.submit([5, 6, 7, 8], max_tokens=16, seed=2)
    world.drain()
    assert world.core._requests.counts.retractions == 1
    assert [admit.sampling.seed for plan in world.plans for admit in plan.admits] == [2, 1, 1]


def test_a_request_past_its_deadline_ends_wherever_it_is() -> None:
    world = World(max_seqs=1)
    running = world.submit([1, 2, 3], max_tokens=50, deadline=7.5)
    waiting = world.submit([4, 5, 6], deadline=7.0)
    patient = world.submit([7, 8, 9], deadline=9.0)
    world.turn()
    world.turn()
    deadlines = [world.core.next_deadline]
    world.expire(7.5)
    deadlines.append(world.core.next_deadline)
    shown = list(world.streams[running].tokens)
    world.drain()
    deadlines.append(world.core.next_deadline)
    assert deadlines == [7.0, 9.0, None]
    for uid in (running, waiting):
        assert world.end(uid).reason == "error"
        assert (world.fault(uid).status, world.fault(uid).type) == (408, "timeout_error")
        assert world.fault(uid).code == "timeout"
    assert "within its timeout of 7.5 seconds" in world.fault(running).message
    assert world.streams[running].tokens == shown == world.expect(running)[0][: len(shown)]
    assert world.output(patient) == world.expect(patient)


# Ends from outside.


def test_an_abort_in_the_queue_ends_at_once() -> None:
    world = World(max_seqs=1)
    world.submit([1, 2, 3])
    uid = world.submit([4, 5, 6])
    world.turn()
    world.abort(uid)
    assert world.end(uid) == m.End(uid, "abort")
    assert world.core.waiting == 0
    world.drain()
    assert world.streams[uid].tokens == []


def test_an_abort_between_chunks_keeps_what_was_computed() -> None:
    world = World(max_batched_tokens=8)
    uid = world.submit(list(range(60)), max_tokens=4)
    world.turn()
    world.abort(uid)
    world.drain()
    again = world.submit(list(range(60)), max_tokens=4)
    world.drain()
    assert world.end(again).cached_tokens == 16
    assert world.output(again) == world.expect(again)


def test_a_stop_is_silent_and_frees_everything() -> None:
    world = World()
    uid = world.submit([1, 2, 3], max_tokens=50)
    waiting = [world.submit([4, 5, i], max_tokens=50) for i in range(5)]
    world.turn()
    for stopped in (uid, *waiting):
        world.stop(stopped)
    world.drain()
    assert world.streams[uid].end is None
    free, cached, owned = world.core.pages
    assert (free + cached, owned) == (64, 0)


def test_unknown_and_ended_uids_are_ignored() -> None:
    world = World()
    uid = world.submit([1, 2, 3], max_tokens=1)
    world.drain()
    world.abort(uid)
    world.abort(77)
    world.core.stop([uid, 77])
    assert world.end(uid).reason == "length"


# The device is lost.


def test_streams_go_on_after_the_device_was_lost() -> None:
    world = World(max_seqs=2)
    uids = [world.submit([1, 2, 3, i], max_tokens=10, seed=i) for i in range(4)]
    for _ in range(4):
        world.turn()
    world.restart()
    world.core.check()
    assert world.core.running == 0
    assert world.core.waiting == 4
    assert world.plan() is not None
    assert world.plans[-1].step == 1
    assert world.plans[-1].cold
    assert [admit.sampling.seed for admit in world.plans[-1].admits] == [0, 1]
    world.drain()
    for uid in uids:
        assert world.output(uid) == world.expect(uid)


def test_what_ended_in_flight_stays_ended_when_the_device_is_lost() -> None:
    world = World()
    uid = world.submit([1, 2, 3], max_tokens=9)
    world.plan()
    world.plan()
    world.abort(uid)
    world.restart()
    world.core.check()
    assert not world.core.busy
    assert world.core.waiting == 0
    assert world.core.pages == (64, 0, 0)


def test_a_prompt_without_output_is_computed_again_after_a_loss() -> None:
    world = World()
    uid = world.submit(list(range(20)), max_tokens=0, sampling=m.Sampling(prompt_logprobs=0))
    world.plan()
    world.restart()
    world.drain()
    assert world.output(uid) == ([], "length")
    assert len(world.streams[uid].prompt_scores) == 19


def test_a_smaller_pool_after_a_loss_fails_what_no_longer_fits() -> None:
    world = World(pages=16, page_size=4)
    large = world.submit(list(range(20)), max_tokens=20)
    open_ended = world.submit([1, 2, 3], max_tokens=None)
    small = world.submit([1, 2, 4], max_tokens=5)
    world.turn()
    world.restart(pages=6)
    world.drain()
    assert world.fault(large).code == "kv_pool_exceeded"
    assert len(world.streams[open_ended].tokens) == 21
    assert world.output(small) == world.expect(small)


# Salts.


def test_nothing_of_one_salt_is_found_through_another() -> None:
    world = World()
    prompt = list(range(20))
    first = world.submit(prompt, cache_salt="ours")
    world.drain()
    uids = {salt: world.submit(prompt, cache_salt=salt) for salt in ("", "theirs", "ours")}
    world.drain()
    cached = {salt: world.end(uid).cached_tokens for salt, uid in uids.items()}
    assert cached == {"": 0, "theirs": 0, "ours": 19}
    assert [world.output(uid) for uid in uids.values()] == [world.output(first)] * 3


def test_beams_search_within_their_salt() -> None:
    world = World(pages=200, max_batched_tokens=64)
    for salt, cached in (("ours", 0), ("theirs", 0), ("ours", 7)):
        uid = world.submit(list(range(8)), beams=m.Beams(2, 1), cache_salt=salt)
        world.drain()
        assert world.streams[uid].cached == cached
        assert world.output(uid) == world.expect(uid)
