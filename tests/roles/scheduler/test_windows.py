from collections.abc import Iterable

import numpy as np
import pytest

from stretto.roles.scheduler.pages import NO_PAGE as NONE
from stretto.roles.scheduler.windows import LEAST_CHUNK, SLACK, Windows
from stretto.tests.roles.scheduler.device import World


def pages(*entries: int) -> np.ndarray:
    return np.array(entries, np.int32)


def test_a_sequence_holds_all_pages_of_full_groups_and_a_bounded_number_of_the_others() -> None:
    windows = Windows((0, 8), page_size=4, budget=16)
    bound = (8 + 2 * 16 + SLACK) // 4 + 1
    assert [windows.most(blocks) for blocks in (1, bound, bound + 1, 100)] == [
        2,
        2 * bound,
        2 * bound + 1,
        100 + bound,
    ]


def test_a_chunk_is_no_longer_than_the_longest_window_or_what_is_worth_a_step() -> None:
    assert Windows((64, 0), 16, budget=8192).chunk == LEAST_CHUNK
    assert Windows((4096,), 16, budget=8192).chunk == 4096
    assert Windows((4096,), 16, budget=100).chunk == 100


def test_decoding_needs_no_pages_once_a_window_is_full() -> None:
    windows = Windows((0, 8), page_size=4, budget=16)
    steady = (8 + SLACK) // 4 + 1
    counts = np.array([1, steady, 50])
    assert windows.lacking(counts, counts + 10) == 3 * 10 + (steady - 1)


def test_pages_are_needed_while_the_window_or_its_slack_touches_them() -> None:
    windows = Windows((0, 8), page_size=4, budget=16)
    edge = 8 - 1 + SLACK + 4  # the first position whose window, and slack, begins with the second page
    assert windows.kept_from(np.array([edge - 1, edge])).tolist() == [[0, 0], [0, 1]]


def test_of_a_prefix_only_the_pages_in_the_window_are_taken() -> None:
    windows = Windows((0, 6), page_size=4, budget=16)
    held = pages(0, 10, 1, 11, 2, 12, 3, 13)
    assert windows.trim(held, 16).tolist() == [0, NONE, 1, NONE, 2, 12, 3, 13]
    assert windows.trim(held, 12).tolist() == [0, NONE, 1, 11, 2, 12, 3, 13]
    assert held[1] == 10


@pytest.mark.parametrize(
    ("lacks", "length", "usable", "whole"),
    [
        ([], 14, 14, 12),
        ([0], 14, 14, 12),
        ([1], 14, 14, 4),
        ([1], 12, 4, 4),
        ([2], 14, 8, 8),
        ([0, 3], 14, 12, 12),
        ([0, 1, 2, 3], 14, 0, 0),
    ],
)
def test_a_prefix_is_usable_where_the_pages_of_its_window_are_there(
    lacks: list[int], length: int, usable: int, whole: int
) -> None:
    """A window of 6: the token after n looks at the last five of them."""
    windows = Windows((6,), page_size=4, budget=16)
    held = pages(*(NONE if block in lacks else block for block in range(-(-length // 4))))
    assert windows.usable(held, length) == usable
    assert windows.usable(held, length, whole=True) == whole


def test_a_full_group_needs_every_page() -> None:
    windows = Windows((0, 6), page_size=4, budget=16)
    assert windows.usable(pages(0, 10, NONE, 11, 2, 12, 3, 13), 16) == 4


# In the core. Each row of the pretended device looks at what its windows show, in every group of layers.


def peak(world: World) -> int:
    """Drain; the most pages that were in use after any turn."""
    most = 0
    while world.core.busy:
        world.turn()
        world.core.check()
        most = max(most, world.core.pages[2])
    return most


@pytest.mark.parametrize(("windows", "full", "bounded"), [((8,), 0, 1), ((0, 8, 8), 1, 2)])
def test_a_long_sequence_holds_a_window_and_what_is_in_flight(
    windows: tuple[int, ...], full: int, bounded: int
) -> None:
    world = World(windows=windows, pages=512, max_batched_tokens=16, max_model_len=500, max_seqs=1)
    uid = world.submit(list(range(300)), max_tokens=150)
    bound = (8 + 2 * 16 + SLACK) // 4 + 1
    assert peak(world) <= full * -(-450 // 4) + bounded * bound
    assert world.output(uid) == world.expect(uid)


def test_a_context_many_times_the_pool_is_served() -> None:
    world = World(windows=(8,), pages=14, max_batched_tokens=16, max_model_len=500)
    uids = [world.submit([n] * 200, max_tokens=200, seed=n) for n in range(3)]
    assert peak(world) <= 14
    assert [world.output(uid) for uid in uids] == [world.expect(uid) for uid in uids]


def test_a_conversation_is_continued_from_its_last_window() -> None:
    world = World(windows=(0, 8), pages=200, max_model_len=500)
    prompt = list(range(100))
    first = world.submit(prompt, max_tokens=60)
    world.drain()
    second = world.submit(prompt + world.output(first)[0] + [1, 2, 3], max_tokens=5)
    world.drain()
    assert world.streams[second].cached == 159
    assert world.output(second) == world.expect(second)


def test_the_same_prompt_is_matched_where_its_windows_end() -> None:
    world = World(windows=(8,), pages=200, max_model_len=500)
    uids = []
    for _ in range(2):
        uids.append(world.submit(list(range(100)), max_tokens=60))
        world.drain()
    assert [world.streams[uid].cached for uid in uids] == [0, 99]


def follow(world: World, prompts: Iterable[list[int]]) -> list[int | None]:
    """Cached tokens of prompts, one after the other."""
    cached = []
    for prompt in prompts:
        uid = world.submit(prompt, max_tokens=3)
        world.drain()
        cached.append(world.streams[uid].cached)
        assert world.output(uid) == world.expect(uid)
    return cached


def test_pages_that_a_prompts_windows_have_left_are_known_as_long_as_there_is_room() -> None:
    world, prefix = World(windows=(8,), pages=200, max_model_len=500), list(range(60))
    assert follow(world, ([*prefix, *[7] * 40], [*prefix, 1], [*prefix[:23], 2])) == [0, 60, 23]


def test_a_prefix_whose_window_is_gone_is_computed_again_and_known_from_then_on() -> None:
    world, prefix = World(windows=(0, 8), pages=200, max_model_len=500), list(range(60))
    follow(world, [[*prefix, *[7] * 40]])
    assert world.core._requests.batch.memory.tree.thin()
    assert not world.core._requests.batch.memory.tree.thin()
    assert follow(world, ([*prefix, 1], [*prefix, 2])) == [0, 60]


def test_little_memory_keeps_windows_before_it_forgets_what_runs() -> None:
    """One prompt's own pages, out of its window and kept in the tree, make room for its next ones."""
    world = World(windows=(8,), pages=14, max_model_len=500)
    assert follow(world, [list(range(200))]) == [0]
    assert world.core.summarize_cache().tokens == 202


def test_a_retracted_sequence_goes_on_from_its_last_window() -> None:
    world = World(windows=(0, 8), pages=70, max_model_len=120, max_batched_tokens=8).optimistic()
    uids = [world.submit([n] * 9, max_tokens=100, seed=n) for n in range(3)]
    world.drain()
    assert world.core.take_counts().retractions
    assert [world.output(uid) for uid in uids] == [world.expect(uid) for uid in uids]


def test_choices_share_the_window_of_their_prompt() -> None:
    world = World(windows=(0, 8), pages=200, max_model_len=300, prefix_cache=False)
    leader = world.submit([5] * 70, max_tokens=30)
    others = [world.submit([5] * 70, 30, (), seed, leader=leader) for seed in (1, 2)]
    world.drain()
    assert [world.streams[uid].cached for uid in others] == [69, 69]
    assert [world.output(uid) for uid in others] == [world.expect(uid) for uid in others]


def test_a_state_of_fixed_size_is_held_as_long_as_a_sequence_runs() -> None:
    world = World(windows=(0, 8), state_pages=3, pages=200, max_model_len=300, max_seqs=1)
    uids = [world.submit([n, 2, 3], max_tokens=2) for n in range(2)]
    assert peak(world) == 3 + 2
    assert [world.output(uid) for uid in uids] == [world.expect(uid) for uid in uids]


def test_where_there_is_a_state_nothing_is_shared() -> None:
    world = World(state_pages=1, pages=100)
    leader = world.submit([5] * 20, max_tokens=5)
    other = world.submit([5] * 20, 5, (), 1, leader=leader)
    world.drain()
    again = world.submit([5] * 20, max_tokens=5)
    world.drain()
    assert [world.streams[uid].cached for uid in (leader, other, again)] == [0, 0, 0]
    assert world.core.pages == (100, 0, 0)
    assert [world.output(uid) for uid in (other, again)] == [world.expect(uid) for uid in (other, again)]


def test_chunks_that_led_to_no_number_are_known_to_nobody() -> None:
    world = World(windows=(8,), pages=200, max_model_len=500)
    world.device.override = lambda seed, position: -1 if seed == 13 else position
    bad = world.submit([5] * 100, max_tokens=3, seed=13)
    world.drain()
    again = world.submit([5] * 100, max_tokens=3)
    world.drain()
    assert (world.fault(bad).code, world.streams[again].cached) == ("nan_logits", 0)
