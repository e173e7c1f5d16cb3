"""What a step's result means: stops, dropped tokens, log-probabilities, what is not a number."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from stretto.roles import messages as m
from stretto.tests.roles.scheduler.device import World, first_token, rows

# Tokens.


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


def test_a_last_chunk_of_one_token_has_nothing_to_score() -> None:
    world = World(max_batched_tokens=8)
    uid = world.submit(list(range(9)), max_tokens=0, sampling=m.Sampling(prompt_logprobs=0))
    world.drain()
    assert [rows(plan.scored, 2) for plan in world.plans] == [[[0, 8]], []]
    assert len(world.streams[uid].prompt_scores) == 8


def test_scores_that_come_after_the_end_are_dropped() -> None:
    world = World(max_batched_tokens=8)
    uid = world.submit(list(range(30)), max_tokens=1, sampling=m.Sampling(prompt_logprobs=0))
    world.plan()
    world.abort(uid)
    world.drain()  # the world refuses what comes after an end
    assert world.streams[uid].prompt_scores == []


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


@pytest.mark.parametrize("cache", [True, False])
def test_scores_neither_repeat_nor_lack_when_their_prompt_is_retracted(cache: bool) -> None:
    world = World(pages=20, page_size=1, max_batched_tokens=3, prefix_cache=cache).optimistic()
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
    world = World(pages=6, page_size=4, max_seqs=2).optimistic()
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


def test_tokens_of_a_request_that_shows_nothing_before_its_end_come_with_its_end() -> None:
    world = World()
    uid = world.submit([1, 2, 3], max_tokens=9, stream=False)
    while world.streams[uid].end is None:
        assert len(world.streams[uid].tokens) <= 1  # the first comes with the news of the cache
        world.turn()
    assert world.output(uid) == world.expect(uid)
    assert len(world.streams[uid].tokens) == 9
