"""What the core promises, rule by rule, on a device that is one step late."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from stretto.roles import messages as m
from stretto.tests.roles.scheduler.device import CLOCK, World, ints, rows


def first_token(prompt: list[int], **sizes: int | bool) -> int:
    world = World(**sizes)
    uid = world.submit(prompt, 1)
    world.drain()
    return world.output(uid)[0][0]


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


@pytest.mark.parametrize(("overlap", "wasted"), [(True, 1), (False, 0)])
def test_the_token_after_a_stop_id_is_dropped(overlap: bool, wasted: int) -> None:
    stop = first_token([1, 2, 3])
    world = World(overlap=overlap)
    uid = world.submit([1, 2, 3], max_tokens=9, stop_ids=(7, stop), silent=(7,))
    world.drain()
    assert world.streams[uid].tokens == [stop]
    assert world.end(uid) == m.End(uid, "stop", stop_id=stop, silent=False)
    assert world.core._requests.counts.generated_tokens == 1
    assert world.core._requests.counts.wasted_tokens == wasted
    assert len(world.plans) == 1 + wasted


def test_the_models_own_stop_id_is_silent() -> None:
    stop = first_token([1, 2, 3])
    world = World()
    uid = world.submit([1, 2, 3], stop_ids=(stop,), silent=(stop,))
    world.drain()
    assert world.end(uid) == m.End(uid, "stop", stop_id=stop, silent=True)


def test_a_stop_id_as_the_last_allowed_token_stops_and_wastes_nothing() -> None:
    stop = first_token([1, 2, 3])
    world = World()
    uid = world.submit([1, 2, 3], max_tokens=1, stop_ids=(stop,))
    world.drain()
    assert world.end(uid).reason == "stop"
    assert world.core._requests.counts.wasted_tokens == 0


def test_more_stop_ids_than_usual_all_stop() -> None:
    stop = first_token([1, 2, 3])
    world = World()
    other = world.submit([4, 5], max_tokens=3)
    uid = world.submit([1, 2, 3], stop_ids=(*range(2000, 2050), stop))
    world.drain()
    assert world.streams[uid].tokens == [stop]
    assert world.output(other) == world.expect(other)


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


def test_a_row_that_is_not_a_number_fails_alone_and_leaves_nothing_behind() -> None:
    world = World()
    world.device.override = lambda seed, position: -1 if seed == 13 and position == 6 else position
    bad = world.submit([1, 2, 3], max_tokens=9, seed=13)
    good = world.submit([4, 5, 6], max_tokens=9, seed=1)
    world.drain()
    assert world.end(bad).reason == "error"
    assert world.fault(bad).code == "nan_logits"
    assert world.streams[bad].tokens == [3, 4, 5]
    assert world.streams[good].tokens == [3, 4, 5, 6, 7, 8, 9, 10, 11]
    again = world.submit([1, 2, 3, 3, 4, 5, 6], max_tokens=1)
    world.drain()
    assert world.end(again).cached_tokens == 3


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


# Scores.


def test_a_prompt_is_computed_and_nothing_sampled() -> None:
    world = World(max_batched_tokens=8)
    uid = world.submit(list(range(20)), max_tokens=0)
    world.drain()
    assert world.output(uid) == ([], "length")
    assert [rows(plan.chunks, 3) for plan in world.plans] == [[[0, 8, 0]], [[0, 8, 0]], [[0, 4, 0]]]
    assert not any(plan.decodes for plan in world.plans)
    again = world.submit(list(range(21)), max_tokens=0)
    world.drain()
    assert world.end(again).cached_tokens == 20


def test_a_prompt_as_long_as_the_context_may_be_scored() -> None:
    world = World(max_model_len=16)
    uid = world.submit(list(range(16)), max_tokens=0)
    world.drain()
    assert world.output(uid) == ([], "length")


def test_a_scored_prompt_is_computed_afresh_and_kept() -> None:
    world = World(max_batched_tokens=8)
    world.submit(list(range(30)), max_tokens=1)
    world.drain()
    uid = world.submit(list(range(20)), max_tokens=2, sampling=m.Sampling(prompt_logprobs=3))
    world.drain()
    assert world.end(uid).cached_tokens == 0
    assert world.output(uid) == world.expect(uid)
    assert world.streams[uid].prompt_scores == world.expect_scores(uid)[0]
    assert len(world.streams[uid].prompt_scores) == 19
    assert [rows(plan.scored, 2) for plan in world.plans[-4:]] == [[[0, 8]], [[0, 16]], [[0, -1]], []]


def test_a_prompt_of_one_token_has_no_score() -> None:
    world = World()
    uid = world.submit([5], max_tokens=0, sampling=m.Sampling(prompt_logprobs=3))
    world.drain()
    assert world.streams[uid].prompt_scores == []
    assert world.output(uid) == ([], "length")


def test_scores_neither_repeat_nor_lack_when_the_device_is_lost() -> None:
    world = World(max_batched_tokens=8)
    uid = world.submit(list(range(30)), max_tokens=2, sampling=m.Sampling(prompt_logprobs=1))
    world.turn()
    world.turn()
    assert len(world.streams[uid].prompt_scores) == 16
    world.restart()
    world.drain()
    assert world.streams[uid].prompt_scores == world.expect_scores(uid)[0]


def test_a_prompt_that_was_scored_in_part_is_reused_as_far_as_that() -> None:
    world = World(max_batched_tokens=8)
    uid = world.submit(list(range(30)), max_tokens=0, sampling=m.Sampling(prompt_logprobs=1))
    sequence = world.core._requests.live[uid]
    for known, reusable in ((1, 0), (17, 16), (30, 29)):
        sequence.scored = known
        assert sequence.reusable(30) == reusable


@pytest.mark.parametrize("cache", [True, False])
def test_scores_neither_repeat_nor_lack_when_their_prompt_is_retracted(cache: bool) -> None:
    world = World(pages=19, page_size=1, max_batched_tokens=3, prefix_cache=cache)
    old = world.submit([1, 2, 3], max_tokens=16)
    world.turn()
    sampling = m.Sampling(prompt_logprobs=2, logprobs=1)
    young = world.submit(list(range(12)), max_tokens=5, sampling=sampling)
    while not world.core._requests.counts.retractions:
        world.turn()
    stream = world.streams[young]
    assert 0 < len(stream.prompt_scores) < 11
    world.drain()
    assert world.output(old) == world.expect(old)
    assert world.output(young) == world.expect(young)
    assert (stream.prompt_scores, stream.scores) == world.expect_scores(young)


def test_a_prompt_is_not_scored_twice_when_its_answer_is_retracted() -> None:
    world = World(pages=6, page_size=4, max_seqs=2)
    world.submit([1, 2, 3, 4], max_tokens=16)
    young = world.submit([5, 6, 7, 8], max_tokens=16, sampling=m.Sampling(prompt_logprobs=2, logprobs=1))
    world.drain()
    assert world.core._requests.counts.retractions == 1
    assert world.output(young) == world.expect(young)
    stream = world.streams[young]
    assert (stream.prompt_scores, stream.scores) == world.expect_scores(young)
    assert sum(bool(plan.scored) for plan in world.plans) == 1


def test_a_dropped_token_has_no_score() -> None:
    stop = first_token([1, 2, 3])
    world = World()
    uid = world.submit([1, 2, 3], 9, (stop,), sampling=m.Sampling(logprobs=2))
    plain = world.submit([1, 2, 4], 9)
    world.drain()
    assert world.core._requests.counts.wasted_tokens == 1
    assert world.streams[uid].scores == world.expect_scores(uid)[1]
    assert len(world.streams[uid].scores) == 1
    assert world.streams[plain].scores == []


def test_a_score_that_is_not_a_number_fails_the_request() -> None:
    world = World(max_batched_tokens=8)
    uid = world.submit(list(range(20)), max_tokens=0, sampling=m.Sampling(prompt_logprobs=0))
    world.plan()
    result = world.device.run(world.flying.popleft())
    part = result.prompt_logprobs[0]
    broken = msgspec.structs.replace(
        part, logprobs=np.full(len(part.logprobs) // 4, np.nan, np.float32).tobytes()
    )
    world.core.advance(msgspec.structs.replace(result, prompt_logprobs=[broken]))
    world.collect()
    assert world.fault(uid).code == "nan_logits"
    assert world.core.pages == (64, 0, 0)


def test_scores_of_chunks_that_are_not_scored_are_a_bug() -> None:
    world = World()
    world.submit([1, 2, 3], sampling=m.Sampling(prompt_logprobs=0))
    world.plan()
    result = world.device.run(world.flying.popleft())
    with pytest.raises(RuntimeError, match="step 1, 1 tokens, 0 scored chunks"):
        world.core.advance(msgspec.structs.replace(result, prompt_logprobs=[]))


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
    world = World(pages=6, page_size=4, max_seqs=2)
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


def test_a_lost_detokenizer_silences_its_requests_only() -> None:
    world = World(detokenizers=2, max_seqs=2)
    uids = [world.submit([1, 2, i], max_tokens=9) for i in range(4)]
    world.turn()
    world.core.lose(1)
    for uid in uids:
        world.streams[uid].silenced = uid % 2 == 1
    world.drain()
    assert [world.streams[uid].end is None for uid in uids] == [True, False, True, False]


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


def test_a_request_that_was_running_at_two_losses_fails_and_others_go_on() -> None:
    world = World(max_seqs=2)
    poison = [world.submit([1, 2, 3, i], max_tokens=20) for i in range(2)]
    others = [world.submit([4, 5, 6, i], max_tokens=5) for i in range(2)]
    for _ in range(2):
        world.turn()
        world.turn()
        world.restart()
    world.drain()
    for uid in poison:
        assert world.fault(uid).code == "poison_request"
        assert world.fault(uid).status == 500
    for uid in others:
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
