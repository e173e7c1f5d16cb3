"""The running batch: what a step holds, when things are shared and freed, and what happens without pages."""

from __future__ import annotations

from stretto.roles.scheduler.ratio import FLOOR
from stretto.roles.scheduler.sequence import Retiring
from stretto.tests.roles.scheduler.device import World, ints, rows

# Steps.


def test_a_decode_is_planned_before_the_token_it_feeds_is_known() -> None:
    world = World()
    world.submit([1, 2, 3])
    first, second = world.plan(), world.plan()
    assert first is not None
    assert second is not None
    assert rows(first.chunks, 3) == [[0, 3, 1]]
    assert ints(second.decodes) == [0]


def test_chunks_of_one_prompt_follow_each_other_in_flight() -> None:
    world = World(max_batched_tokens=16)
    world.submit(list(range(40)), max_tokens=1)
    world.drain()
    assert [rows(plan.chunks, 3) for plan in world.plans] == [[[0, 16, 0]], [[0, 16, 0]], [[0, 8, 1]]]
    assert ints(b"".join(plan.chunk_ids for plan in world.plans)) == list(range(40))


def test_decodes_do_not_wait_behind_a_long_prompt() -> None:
    world = World(max_batched_tokens=8)
    short = world.submit([1, 2, 3], max_tokens=20)
    world.turn()
    world.submit(list(range(60)), max_tokens=1)
    while world.streams[short].end is None:
        world.turn()
    decoding = [plan for plan in world.plans if plan.decodes]
    assert len(decoding) == 19
    assert [rows(plan.chunks, 3) for plan in decoding[1:9]] == [[[1, 7, 0]]] * 8


def test_prompts_share_the_budget_in_queue_order() -> None:
    world = World(max_batched_tokens=8)
    for first in (10, 20, 30):
        world.submit(list(range(first, first + 5)), max_tokens=1)
    world.drain()
    assert [rows(plan.chunks, 3) for plan in world.plans] == [[[0, 5, 1], [1, 3, 0]], [[1, 2, 1], [2, 5, 1]]]


# Sharing and freeing.


def test_a_prompt_is_shared_only_once_its_last_chunk_has_reported() -> None:
    world = World(max_batched_tokens=8)
    prompt = list(range(12))
    world.submit(prompt, max_tokens=9)
    world.plan()
    world.plan()
    early = world.submit([*prompt, 50], max_tokens=1)
    world.report()
    world.plan()
    late = world.submit([*prompt, 60], max_tokens=1)
    world.drain()
    assert world.end(early).cached_tokens == 0
    assert world.end(late).cached_tokens == 12


def test_two_copies_of_one_page_in_one_step() -> None:
    world = World(max_seqs=4)
    world.submit([1, 2, 3], max_tokens=1)
    world.drain()
    uids = [world.submit([1, 2, last], max_tokens=3) for last in (7, 8)]
    world.drain()
    copies = rows(world.plans[1].copies, 2)
    assert [source for source, _ in copies] == [0, 0]
    for uid in uids:
        assert world.output(uid) == world.expect(uid)


def test_pages_of_an_aborted_request_return_when_its_last_step_has_reported() -> None:
    world = World(pages=8, page_size=4)
    uid = world.submit(list(range(10)), max_tokens=9)
    world.plan()
    world.plan()
    world.abort(uid)
    assert world.end(uid).reason == "abort"
    assert world.core.pages == (5, 0, 3)
    assert world.plan() is None
    world.report()
    assert world.core.pages == (5, 0, 3)
    world.report()
    assert world.core.pages == (5, 3, 0)
    assert not world.core.busy


def test_the_source_of_a_copy_is_held_until_the_copy_has_happened() -> None:
    world = World(pages=8, page_size=4)
    world.submit([1, 2], max_tokens=1)
    world.drain()
    world.submit([1, 2, 3], max_tokens=1)
    world.plan()
    assert world.core.pages == (6, 0, 2)
    world.report()
    assert world.core.pages == (7, 1, 0)


# Out of pages.


def crowded() -> World:
    """Two sequences are admitted to six pages, whatever they may need."""
    return World(pages=6, page_size=4, max_seqs=2).optimistic()


def test_the_youngest_is_retracted_and_nobody_notices() -> None:
    world = crowded()
    old = world.submit([1, 2, 3, 4], max_tokens=16)
    young = world.submit([5, 6, 7, 8], max_tokens=16)
    world.drain()
    assert world.core._requests.counts.retractions == 1
    assert world.output(old) == world.expect(old)
    assert world.output(young) == world.expect(young)
    admits = [admit for plan in world.plans for admit in plan.admits]
    assert len(admits) == 3
    assert world.end(young).cached_tokens == 0


def test_a_retracted_sequence_comes_before_the_queue() -> None:
    world = crowded()
    world.submit([1, 2, 3, 4], max_tokens=16, seed=1)
    world.submit([5, 6, 7, 8], max_tokens=16, seed=2)
    world.submit([9, 10, 11, 12], max_tokens=8, seed=3)
    world.drain()
    seeds = [admit.sampling.seed for plan in world.plans for admit in plan.admits]
    assert seeds[:4] == [1, 2, 2, 3]


def test_an_abort_of_a_retracted_sequence_in_flight_ends_it() -> None:
    world = crowded()
    old = world.submit([1, 2, 3, 4], max_tokens=16)
    young = world.submit([5, 6, 7, 8], max_tokens=16)
    sequence = world.core._requests.live[young]
    while world.plan() is not None or not isinstance(sequence.state, Retiring):
        if len(world.flying) == 2:
            world.report()
    world.abort(young)
    world.drain()
    assert world.core._requests.counts.retractions == 0
    assert world.end(young).reason == "abort"
    assert world.output(old) == world.expect(old)


def test_admission_leaves_a_page_for_each_running_sequence() -> None:
    world = World(pages=4, page_size=4, max_seqs=4)
    world.submit([1, 2, 3, 4], max_tokens=4)
    world.submit([5, 6, 7, 8], max_tokens=4)
    late = world.submit([9, 10, 11, 12], max_tokens=4)
    world.plan()
    assert world.core.running == 2
    assert world.core.waiting == 1
    world.drain()
    assert world.core._requests.counts.retractions == 0
    assert world.output(late) == world.expect(late)


def test_a_lone_sequence_can_use_the_whole_pool() -> None:
    world = World(pages=6, page_size=8, max_seqs=3)
    prompt = [1, 2, 3, 4, 5, 6]
    for length in range(1, 6):  # a chain of nodes, each with its own version of page 0
        world.submit([*prompt[:length], 50 + length], max_tokens=1)
        world.drain()
    uid = world.submit(prompt, max_tokens=42)
    world.drain()
    assert world.output(uid) == world.expect(uid)
    assert world.core._requests.counts.retractions == 0


def test_admission_leaves_pages_for_what_outputs_are_expected_to_need() -> None:
    world = World(pages=16, page_size=4, max_model_len=64, max_batched_tokens=64)
    for _ in range(4):
        world.submit([1, 2, 3, 4], max_tokens=20)
    world.core._requests.batch.ratio.value = 0.7
    world.plan()
    assert world.core.running == 3  # each is to have 18 tokens, five pages
    world = World(pages=16, page_size=4, max_model_len=64, max_batched_tokens=64)
    world.core._requests.batch.ratio.value = 0.1
    for _ in range(4):
        world.submit([1, 2, 3, 4], max_tokens=20)
    world.plan()
    assert world.core.running == 4


def test_a_retraction_takes_whoever_loses_least_and_the_ratio_learns() -> None:
    world = World(pages=10, page_size=4, max_seqs=3, max_batched_tokens=64, prefix_cache=False)
    batch = world.optimistic().core._requests.batch
    short = world.submit([9, 9], max_tokens=30)
    longer = [world.submit([first, *range(9)], max_tokens=18) for first in (20, 30)]
    sequences = [world.core._requests.live[uid] for uid in (short, *longer)]
    while not any(sequence.retractions for sequence in sequences):
        world.turn()
    assert [sequence.retractions for sequence in sequences] == [1, 0, 0]
    assert batch.ratio.value > FLOOR
    world.drain()
    for uid in (short, *longer):
        assert world.output(uid) == world.expect(uid)


def test_whoever_was_retracted_less_often_goes_first() -> None:
    world = crowded()
    uids = [world.submit([first, 2, 3, 4], max_tokens=16) for first in (1, 5)]
    world.plan()
    batch, live = world.core._requests.batch, world.core._requests.live
    live[uids[1]].retractions = 1
    assert min(batch.holders.values(), key=batch._loss).uid == uids[0]


def test_lower_priority_is_retracted_first() -> None:
    world = crowded()
    uids = [world.submit([first, 2, 3, 4], max_tokens=16, priority=-first) for first in (1, 5)]
    world.plan()
    batch = world.core._requests.batch
    assert min(batch.holders.values(), key=batch._loss).uid == uids[0]
