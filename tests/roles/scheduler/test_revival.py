"""Requests go on when a detokenizer dies, or the scheduler itself."""

from __future__ import annotations

import msgspec
import pytest

from stretto.roles import messages as m
from stretto.tests.roles.scheduler.device import World, ints


def test_the_successor_of_a_detokenizer_is_told_all_of_its_streams_and_nobody_elses() -> None:
    world = World(detokenizers=2, max_seqs=2)
    uids = [world.submit([1, 2, i], max_tokens=9) for i in range(4)]
    for _ in range(4):
        world.turn()
    known = {uid: list(world.streams[uid].tokens) for uid in uids}
    assert len(known[1]) == 4
    world.core.retell(1)
    ((index, message),) = world.core.take()
    assert index == 1
    assert [(opened.uid, ints(opened.generated)) for opened in message.opens] == [(1, known[1]), (3, [])]
    assert message.hits == [(1, 0)]
    world.drain()
    for uid in uids:
        assert world.output(uid) == world.expect(uid)


@pytest.mark.parametrize("sampling", [m.Sampling(logprobs=1), m.Sampling(prompt_logprobs=1)])
def test_what_cannot_be_told_again_is_computed_again(sampling: m.Sampling) -> None:
    world = World()
    uid = world.submit([1, 2, 3], max_tokens=9, sampling=sampling, deadline=5.0)
    for _ in range(4):
        world.turn()
    assert world.streams[uid].tokens
    world.lose_detokenizer(0)
    assert world.streams[uid].tokens == []
    assert world.core.next_deadline == 5.0
    world.drain()
    assert world.output(uid) == world.expect(uid)
    assert (world.streams[uid].prompt_scores, world.streams[uid].scores) == world.expect_scores(uid)


def test_a_new_scheduler_goes_on_after_the_tokens_that_are_known() -> None:
    world = World()
    uid = world.submit([1, 2, 3], max_tokens=9, sampling=m.Sampling(logprobs=2, prompt_logprobs=1))
    for _ in range(5):
        world.turn()
    known = len(world.streams[uid].tokens)
    assert known
    world.lose_scheduler()
    world.drain()
    assert world.output(uid) == world.expect(uid)
    assert (world.streams[uid].prompt_scores, world.streams[uid].scores) == world.expect_scores(uid)
    assert ints(world.plans[-1].decodes)
    assert world.core.take_counts().generated_tokens == 9 - known


def test_choices_are_recalled_without_a_leader_that_has_ended() -> None:
    world = World()
    leader = world.submit([1, 2, 3], max_tokens=2, seed=1)
    follower = world.submit([1, 2, 3], max_tokens=9, seed=2, leader=leader)
    while world.streams[leader].end is None:
        world.turn()
    world.lose_scheduler()
    world.drain()
    assert world.output(follower) == world.expect(follower)


def test_a_request_submitted_again_starts_after_what_its_client_has() -> None:
    world, quiet = World(), World()
    uid = quiet.submit([1, 2, 3], max_tokens=9, seed=4)
    quiet.drain()
    known = quiet.streams[uid].tokens[:5]
    again = world.submit([1, 2, 3], max_tokens=9, seed=4, generated=m.Held(0, b"", _int32(known)).generated)
    assert world.streams[again].tokens == known
    world.streams[again].cached = 0
    world.drain()
    assert world.output(again) == quiet.output(uid)
    assert world.core.take_counts().generated_tokens == 4


def test_an_end_that_is_known_already_is_found_again() -> None:
    quiet = World()
    uid = quiet.submit([1, 2, 3], max_tokens=9, seed=4)
    quiet.drain()
    tokens = quiet.streams[uid].tokens
    stop = tokens[4]
    for known, ids in ((tokens, ()), (tokens[:7], (stop,))):
        world = World()
        again = world.submit([1, 2, 3], 9, ids, seed=4, generated=_int32(known))
        world.streams[again].cached = 0
        world.drain()
        assert world.output(again) == world.expect(again)


def test_scores_that_nobody_has_are_made_again() -> None:
    world = World()
    sampling = m.Sampling(logprobs=1)
    uid = world.submit([1, 2, 3], max_tokens=4, sampling=sampling, generated=_int32([5, 6]))
    world.drain()
    assert world.output(uid) == world.expect(uid)
    assert len(world.streams[uid].scores) == 4


def test_the_request_that_comes_with_the_opening_is_the_one_to_recall() -> None:
    world = World()
    uid = world.submit([1, 2, 3], max_tokens=4, generated=_int32([5]))
    kept = msgspec.msgpack.decode(world.streams[uid].kept, type=m.Request)
    assert kept == msgspec.structs.replace(world.streams[uid].request, generated=b"")


def test_a_request_too_large_to_keep_is_announced_without() -> None:
    world = World(max_model_len=1 << 19, pages=1 << 17, page_size=4)
    uid = world.submit([1] * (1 << 18), max_tokens=1)
    assert world.streams[uid].kept == b""


def _int32(values: list[int]) -> bytes:
    return b"".join(value.to_bytes(4, "little") for value in values)
