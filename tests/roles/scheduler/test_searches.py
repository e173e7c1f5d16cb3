"""Beam searches through the core, on a device that is one step late."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stretto.roles import messages as m
from stretto.roles.scheduler.core import Core
from stretto.tests.roles.scheduler.device import World, rows

STOPS = (0, 1)


def world_of(**sizes: int | bool) -> World:
    return World(**{"vocabulary": 20, **sizes})


def submit(world: World, prompt: list[int], width: int = 3, n: int = 2, **fields: Any) -> list[int]:
    fields = {"max_tokens": 8, "stop_ids": STOPS, "silent": (1,), **fields}
    first = world.submit(prompt, beams=m.Beams(width, n), **fields)
    return list(range(first, first + n))


def check(world: World, uids: list[int]) -> None:
    for uid in uids:
        assert world.output(uid) == world.expect(uid)
        stream = world.streams[uid]
        assert (stream.prompt_scores, stream.scores) == world.expect_scores(uid)


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("overlap", [True, False])
def test_choices_end_with_the_best_beams(overlap: bool, cache: bool) -> None:
    world = world_of(overlap=overlap, prefix_cache=cache)
    searches = [submit(world, [1, 2, 3 + i]) for i in range(3)]
    plain = world.submit([1, 2, 3], max_tokens=8)
    world.drain()
    for uids in searches:
        check(world, uids)
    assert world.output(plain) == world.expect(plain)


def test_the_end_says_which_stop_id_it_was() -> None:
    world = world_of()
    uids = [uid for i in range(20) for uid in submit(world, [1, 2, i])]
    world.drain()
    ends = [world.end(uid) for uid in uids]
    stops = [(end.stop_id, end.silent) for end in ends if end.reason == "stop"]
    assert set(stops) == {(0, False), (1, True)}
    for uid, end in zip(uids, ends, strict=True):
        assert end.stop_id == (world.streams[uid].tokens[-1] if end.reason == "stop" else None)


def test_a_step_computes_one_token_of_each_beam() -> None:
    world = world_of(pages=200, page_size=16, max_batched_tokens=200, max_model_len=256)
    submit(world, list(range(100)), width=4, stop_ids=(), max_tokens=5)
    world.drain()
    assert [[count for _, count, _ in rows(plan.chunks, 3)] for plan in world.plans] == [[100]] + 4 * [
        [1] * 4
    ]
    assert not any(plan.decodes for plan in world.plans)
    counts = world.core.take_counts()
    assert (counts.prompt_tokens, counts.cached_tokens, counts.generated_tokens) == (100, 0, 10)


def test_beams_that_die_leave_no_pages_behind() -> None:
    world = world_of(pages=200, page_size=2, max_seqs=8)
    submit(world, [1, 2, 3], width=4, stop_ids=(), max_tokens=20)
    most = 0
    while world.core.busy:
        world.turn()
        most = max(most, sum(world.core.pages[1:]))
    assert most < 50  # with what dead beams leave there are 60


def test_more_beams_than_slots() -> None:
    world = world_of(max_seqs=2)
    check_later = submit(world, [1, 2, 3], width=5, n=5)
    world.drain()
    check(world, check_later)


def test_beams_survive_retractions() -> None:
    world = world_of(pages=20, page_size=1, max_batched_tokens=3).optimistic()
    old = world.submit([1, 2, 3], max_tokens=16)
    world.turn()
    uids = submit(world, list(range(12)), max_tokens=3)
    while not world.core._requests.counts.retractions:
        world.turn()
        world.core.check()
    assert all(sequence.cached == 0 for sequence in world.core._requests.queue)
    world.drain()
    check(world, uids)
    assert world.output(old) == world.expect(old)


def test_beams_survive_the_loss_of_the_device() -> None:
    world = world_of()
    uids = submit(world, [1, 2, 3], stop_ids=())
    for _ in range(4):
        world.turn()
    world.restart()
    world.core.check()
    world.drain()
    check(world, uids)


def test_beams_that_kill_the_device_fail_each_choice() -> None:
    world = world_of()
    uids = submit(world, [1, 2, 3])
    for _ in range(3):
        world.plan()
        world.restart()
    world.drain()
    assert [world.fault(uid).code for uid in uids] == ["poison_request"] * 2


def test_a_beam_that_is_not_a_number_fails_each_choice() -> None:
    world = world_of()
    world.device.override = lambda seed, position: -1 if position == 5 else 0
    uids = submit(world, [1, 2, 3], stop_ids=())
    world.drain()
    assert [world.fault(uid).code for uid in uids] == ["nan_logits"] * 2
    assert world.core.running == world.core.waiting == 0


def test_a_choice_can_be_aborted_alone_and_the_last_takes_the_search_along() -> None:
    world = world_of()
    first, second = submit(world, [1, 2, 3], stop_ids=())
    world.turn()
    world.abort(first)
    assert world.end(first).reason == "abort"
    world.core.check()
    world.turn()
    assert world.core.busy
    world.drain()
    check(world, [second])
    third, fourth = submit(world, [1, 2, 3], stop_ids=())
    world.turn()
    world.abort(third)
    world.stop(fourth)
    world.core.check()
    assert world.core.waiting == world.core.running == 0
    assert not world.core._requests.searches._by_inner
    world.drain()


def test_a_search_that_ends_in_time_has_no_deadline_any_more() -> None:
    world = world_of()
    uids = submit(world, [1, 2, 3], deadline=5.0)
    world.drain()
    check(world, uids)
    assert world.core.next_deadline is None


def test_a_search_has_its_priority_at_every_step() -> None:
    world = world_of(max_seqs=1)
    uids = submit(world, [1, 2, 3], stop_ids=(), priority=1)
    world.turn()
    urgent = world.submit([4, 5, 6], max_tokens=2)
    while world.streams[urgent].end is None:
        world.turn()
    assert world.streams[uids[0]].end is None
    world.drain()
    check(world, uids)


def test_a_prompt_as_long_as_the_context_needs_no_beams() -> None:
    world = world_of(max_model_len=16)
    uids = submit(world, [2] * 16, max_tokens=0)
    world.drain()
    assert [world.output(uid) for uid in uids] == [([], "length")] * 2


def test_a_search_past_its_deadline_fails_each_choice() -> None:
    world = world_of()
    uids = submit(world, [1, 2, 3], deadline=5.0)
    world.turn()
    world.expire(5.0)
    assert [world.fault(uid).code for uid in uids] == ["timeout"] * 2
    assert world.core.next_deadline is None
    world.drain()


def test_a_search_that_can_never_fit_is_refused_for_each_choice() -> None:
    world = world_of(max_model_len=16)
    uids = submit(world, [2] * 12)
    assert [world.fault(uid).code for uid in uids] == ["context_length_exceeded"] * 2
    assert not world.core.busy


def test_a_search_that_lives_already_is_not_taken_twice() -> None:
    world = world_of()
    uids = submit(world, [1, 2, 3])
    world.turn()
    world.core.submit([world.streams[uids[0]].request])
    world.drain()
    check(world, uids)


def test_the_successor_of_a_detokenizer_hears_of_its_choices() -> None:
    world = world_of(detokenizers=2)
    uids = submit(world, [1, 2, 3], n=3)
    world.turn()
    world.lose_detokenizer(1)
    world.drain()
    check(world, uids)


def test_a_search_begins_again_where_what_its_prompt_scored_was_lost() -> None:
    world = world_of(max_batched_tokens=4)
    uids = submit(world, list(range(10)), sampling=m.Sampling(logprobs=3, prompt_logprobs=2), deadline=9.0)
    world.turn()
    world.turn()
    assert world.streams[uids[0]].prompt_scores
    world.lose_detokenizer(0)
    assert world.core.next_deadline == 9.0
    world.drain()
    check(world, uids)


def test_a_search_is_recalled_for_the_choices_that_live_and_others_join_it() -> None:
    world = world_of()
    uids = submit(world, [1, 2, 3], n=3)
    world.turn()
    lost = world.streams[uids[1]]
    world.stop(uids[1])
    world.lose_scheduler()
    world.turn()
    lost.silenced = lost.opened = False
    world.core.submit([lost.request])
    world.drain()
    check(world, uids)


def test_the_prompt_of_a_search_can_be_scored() -> None:
    world = world_of(max_batched_tokens=4)
    uids = submit(world, list(range(10)), sampling=m.Sampling(logprobs=3, prompt_logprobs=2))
    none = submit(world, list(range(10)), max_tokens=0, sampling=m.Sampling(prompt_logprobs=2))
    world.drain()
    check(world, uids)
    check(world, none)
    assert len(world.streams[none[0]].prompt_scores) == 9
    assert world.output(none[1]) == ([], "length")


def test_only_the_first_choice_hears_of_the_prompt() -> None:
    core = Core(world_of().limits)
    ids = np.array([1, 2], np.int32).tobytes()
    output = m.Output(0, False, prompt_ids=ids, return_prompt_ids=True, prompt_logprobs=1)
    request = m.Request(8, 0.0, ids, 3, (), m.Sampling(), output, beams=m.Beams(2, 2))
    core.submit([request])
    ((_, message),) = core.take()
    assert [(opened.uid, opened.prompt_tokens) for opened in message.opens] == [(8, 2), (9, 2)]
    first, second = (opened.output for opened in message.opens)
    assert first == output
    assert (second.prompt_ids, second.return_prompt_ids, second.prompt_logprobs) == (b"", False, None)
