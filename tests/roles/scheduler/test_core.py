"""What the core promises of streams, steps and reuse, on a device that is one step late."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from stretto.roles import messages as m
from stretto.tests.roles.scheduler.device import CLOCK, World, first_token, ints, rows

# Streams.


@pytest.mark.parametrize("overlap", [True, False])
def test_a_request_gets_the_tokens_it_gets_alone_and_one_end(overlap: bool) -> None:
    world = World(overlap=overlap)
    uids = [world.submit([1, 2, 3 + i], max_tokens=5 + i, seed=i) for i in range(9)]
    world.drain()
    for uid in uids:
        assert world.output(uid) == world.expect(uid)
        assert world.output(uid)[1] == "length"


def test_a_length_limit_wastes_no_step() -> None:
    world = World()
    world.submit([1, 2, 3], max_tokens=4)
    world.drain()
    assert [ints(plan.decodes) for plan in world.plans] == [[], [0], [0], [0]]
    assert world.core._requests.counts.generated_tokens == 4
    assert world.core._requests.counts.wasted_tokens == 0


def test_no_limit_means_up_to_the_context() -> None:
    world = World(max_model_len=20)
    uid = world.submit([1, 2, 3], max_tokens=None)
    world.drain()
    assert len(world.streams[uid].tokens) == 17
    assert world.end(uid).reason == "length"


def test_no_limit_means_no_more_than_the_pool() -> None:
    world = World(max_model_len=100, pages=3, page_size=4)
    uid = world.submit([1, 2, 3], max_tokens=None)
    world.drain()
    assert len(world.streams[uid].tokens) == 9


def test_a_uid_that_lives_already_is_not_taken_twice() -> None:
    world = World()
    uid = world.submit([1, 2, 3])
    world.turn()
    world.core.submit([world.streams[uid].request])
    world.drain()
    assert world.output(uid) == world.expect(uid)


def test_tokens_go_to_the_detokenizer_of_the_request() -> None:
    world = World(detokenizers=3)
    uids = [world.submit([1, i]) for i in range(5)]  # the world checks who gets what
    world.drain()
    for uid in uids:
        assert world.output(uid) == world.expect(uid)


# Steps.


def test_two_plans_are_in_flight_and_no_third() -> None:
    world = World()
    world.submit([1, 2, 3], max_tokens=9)
    assert world.plan() is not None
    assert world.plan() is not None
    assert world.plan() is None
    world.report()
    assert world.plan() is not None


def test_without_overlap_one_plan_is_in_flight() -> None:
    world = World(overlap=False)
    world.submit([1, 2, 3], max_tokens=9)
    assert world.plan() is not None
    assert world.plan() is None
    world.report()
    assert world.plan() is not None


def test_a_plan_is_cold_only_when_nobody_lived_before_it() -> None:
    world = World()
    world.submit([1, 2, 3], max_tokens=3)
    world.drain()
    world.submit([4, 5, 6], max_tokens=2)
    world.turn()
    world.submit([7, 8, 9], max_tokens=1)
    world.drain()
    assert [plan.cold for plan in world.plans] == [True, False, False, True, False, False]


def test_a_result_that_answers_no_plan_is_a_bug() -> None:
    world = World()
    world.submit([1, 2, 3])
    world.plan()
    with pytest.raises(
        RuntimeError, match=r"step 2, 1 tokens, 0 scored chunks, does not answer the first of \[1\]"
    ):
        world.core.advance(m.Result(2, np.array([1], np.int32).tobytes(), CLOCK))
    with pytest.raises(RuntimeError, match="step 1, 0 tokens"):
        world.core.advance(m.Result(1, b"", CLOCK))
    world.drain()  # nothing had changed


def test_scores_of_chunks_that_are_not_scored_are_a_bug() -> None:
    world = World()
    world.submit([1, 2, 3], sampling=m.Sampling(prompt_logprobs=0))
    world.plan()
    result = world.device.run(world.flying.popleft())
    with pytest.raises(RuntimeError, match="step 1, 1 tokens, 0 scored chunks"):
        world.core.advance(msgspec.structs.replace(result, prompt_logprobs=[]))


# Prefix reuse.


def test_reuse_is_granular_to_the_token() -> None:
    world = World(pages=200, page_size=16, max_batched_tokens=2048, max_model_len=2048)
    shared = list(range(1000))
    world.submit([*shared, 5000, 5001], max_tokens=1)
    world.drain()
    uid = world.submit([*shared, 6000, 6001, 6002], max_tokens=3)
    world.drain()
    assert world.end(uid).cached_tokens == 1000
    assert world.output(uid) == world.expect(uid)
    assert [len(rows(plan.copies, 2)) for plan in world.plans] == [0, 1, 0, 0]
    assert world.core._requests.counts.prompt_tokens == 1002 + 1003
    assert world.core._requests.counts.cached_tokens == 1000


def test_a_match_on_a_page_boundary_copies_nothing() -> None:
    world = World(page_size=4)
    world.submit([1, 2, 3, 4, 5, 6, 7, 8, 9], max_tokens=1)
    world.drain()
    uid = world.submit([1, 2, 3, 4, 5, 6, 7, 8, 10, 11], max_tokens=1)
    world.drain()
    assert world.end(uid).cached_tokens == 8
    assert not any(plan.copies for plan in world.plans)


def test_at_least_one_prompt_token_is_computed() -> None:
    world = World()
    world.submit([1, 2, 3, 4], max_tokens=1)
    world.drain()
    uid = world.submit([1, 2, 3, 4], max_tokens=1)
    world.drain()
    assert world.end(uid).cached_tokens == 3
    assert rows(world.plans[-1].chunks, 3) == [[0, 1, 1]]


def test_an_answer_is_reused_but_for_its_last_token() -> None:
    world = World()
    first = world.submit([1, 2, 3], max_tokens=6)
    world.drain()
    uid = world.submit([1, 2, 3, *world.streams[first].tokens, 9], max_tokens=1)
    world.drain()
    assert world.end(uid).cached_tokens == 8
    assert world.output(uid) == world.expect(uid)


def test_a_stop_token_is_reused_where_its_wasted_row_computed_it() -> None:
    stop = first_token([1, 2, 3])
    world = World()
    world.submit([1, 2, 3], max_tokens=6, stop_ids=(stop,))
    world.drain()
    uid = world.submit([1, 2, 3, stop, 9], max_tokens=1)
    world.drain()
    assert world.end(uid).cached_tokens == 4
    assert world.output(uid) == world.expect(uid)


def test_the_kv_of_a_dropped_token_is_never_reused() -> None:
    world = World()
    first = world.submit([1, 2, 3], max_tokens=9)
    world.plan()
    world.plan()
    world.report()
    world.plan()
    world.abort(first)  # one token is known; the steps in flight feed it and its unknown successor
    world.drain()
    history = [1, 2, 3, *world.streams[first].tokens]
    for last in (0, world.expect(first)[0][1]):
        uid = world.submit([*history, last, 9], max_tokens=2)
        world.drain()
        assert world.output(uid) == world.expect(uid)
        assert world.end(uid).cached_tokens == 4


def test_many_cold_requests_with_one_prompt_get_one_answer() -> None:
    world = World(pages=200, max_seqs=32, max_batched_tokens=64)
    uids = [world.submit(list(range(30)), max_tokens=8) for _ in range(32)]
    world.drain()
    assert {tuple(world.streams[uid].tokens) for uid in uids} == {tuple(world.expect(uids[0])[0])}


def test_without_prefix_cache_nothing_is_kept() -> None:
    world = World(prefix_cache=False)
    world.submit([1, 2, 3, 4], max_tokens=1)
    world.drain()
    uid = world.submit([1, 2, 3, 4], max_tokens=1)
    world.drain()
    assert world.end(uid).cached_tokens == 0
    assert world.core.pages == (64, 0, 0)
