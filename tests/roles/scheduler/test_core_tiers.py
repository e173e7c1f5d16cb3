"""The core with memory below the device: what leaves the pool comes back, and every token stays right."""

from __future__ import annotations

import math

import pytest

from stretto.roles import messages as m
from stretto.roles.scheduler.below import Below
from stretto.tests.roles.scheduler.device import World

HOST = Below(host_pages=64)
DISK = Below(host_pages=64, disk=True)
FIRST, SECOND = list(range(100, 140)), list(range(200, 240))


def world(below: Below, pages: int = 12, **sizes: int) -> World:
    made = World(pages=pages, page_size=4, max_model_len=48, below=below, **sizes)
    made.disk_pages = made.lower.capacity = 64
    return made


def ask(at: World, prompt: list[int], **fields: str) -> int:
    """Tokens of the prompt that were cached; the answer must be right."""
    uid = at.submit(prompt, 3, **fields)
    at.drain()
    assert at.output(uid) == at.expect(uid)
    return at.end(uid).cached_tokens


def settle(at: World) -> None:
    """Let the disk do all that it was asked for."""
    while at.plan() is None and at.lower.disk_moves:
        at.lower.answer(0, fails=False)


@pytest.mark.parametrize("write", ["back", "through"])
def test_an_evicted_prompt_comes_back_whole_pages_at_a_time(write: str) -> None:
    at = world(Below(host_pages=64, write=write))  # type: ignore[arg-type]
    assert [ask(at, FIRST), ask(at, SECOND)] == [0, 0]
    assert ask(at, [*FIRST[:39], 1]) == 36
    assert at.core.tiers.counts.host_hit_pages == 9
    counts = at.core.take_counts()
    assert (counts.cached_tokens, counts.host_cached_tokens, counts.disk_cached_tokens) == (36, 36, 0)


def test_without_anything_below_it_does_not() -> None:
    at = world(Below())
    assert [ask(at, FIRST), ask(at, SECOND), ask(at, FIRST)] == [0, 0, 0]


def test_selective_writes_keep_what_was_used_twice() -> None:
    at = world(Below(host_pages=64, write="selective"))
    ask(at, FIRST)
    ask(at, FIRST[:30])
    ask(at, SECOND)
    assert ask(at, FIRST) == 28
    ask(at, FIRST)
    assert ask(at, SECOND) == 0


def test_salts_share_nothing_below_the_device_either() -> None:
    at = world(HOST)
    ask(at, FIRST, cache_salt="a")
    ask(at, SECOND)
    assert ask(at, FIRST, cache_salt="b") == 0
    assert ask(at, FIRST, cache_salt="a") == 36


def test_what_is_cheaper_to_compute_is_computed() -> None:
    at = world(Below(host_pages=64, copy_seconds=2.0, compute_seconds=1.0))
    ask(at, FIRST)
    ask(at, SECOND)
    assert ask(at, FIRST) == 0


def test_a_retracted_sequence_is_swapped_out_and_goes_on_from_the_host() -> None:
    at = world(Below(host_pages=64, write="selective"), pages=10, max_batched_tokens=32).optimistic()
    uids = [at.submit([1000 * n + i for i in range(12)], 20, seed=n) for n in (1, 2, 3)]
    at.drain()
    assert [at.output(uid) for uid in uids] == [at.expect(uid) for uid in uids]
    counts = at.core.tiers.counts
    assert counts.swapped_pages > 0
    assert counts.host_hit_pages > 0


def test_the_disk_outlives_the_executor_and_the_host_does_not() -> None:
    at = world(DISK)
    ask(at, FIRST)
    settle(at)
    at.restart()
    assert at.core.tiers.sizes == (0, 10)
    at.core.take_counts()
    assert ask(at, [*FIRST[:20], 1]) == 20
    assert ask(at, FIRST) == 36
    assert at.core.tiers.counts.disk_hit_pages == 9
    counts = at.core.take_counts()
    assert (counts.cached_tokens, counts.host_cached_tokens, counts.disk_cached_tokens) == (56, 0, 36)
    without = world(HOST)
    ask(without, FIRST)
    without.restart()
    assert ask(without, FIRST) == 0


def test_a_request_that_waits_for_the_disk_is_in_nobodys_way() -> None:
    at = world(DISK)
    ask(at, FIRST)
    settle(at)
    at.restart()
    waits, goes = at.submit(FIRST, 3), at.submit(SECOND[:8], 3)
    while at.streams[goes].end is None:
        if at.plan() is None:
            at.report()
    assert not at.streams[waits].tokens
    at.lower.answer(0, fails=False)
    at.drain()
    assert at.end(waits).cached_tokens == 36
    assert at.output(waits) == at.expect(waits)


def test_a_request_whose_pages_cannot_be_read_is_computed() -> None:
    at = world(DISK)
    ask(at, FIRST)
    settle(at)
    at.restart()
    uid = at.submit(FIRST, 3)
    assert at.plan() is None
    while at.lower.disk_moves:
        at.lower.answer(0, fails=True)
    at.drain()
    assert at.end(uid).cached_tokens == 0
    assert at.output(uid) == at.expect(uid)


def test_one_that_waits_for_the_disk_can_be_aborted() -> None:
    at = world(DISK)
    ask(at, FIRST)
    settle(at)
    at.restart()
    uid = at.submit(FIRST, 3)
    assert at.plan() is None
    at.abort(uid)
    at.core.check()
    assert (at.end(uid).reason, at.core.busy) == ("abort", False)
    settle(at)
    at.core.check()


def test_a_plan_names_the_move_that_it_must_not_overtake() -> None:
    at = world(HOST)
    ask(at, FIRST)
    ask(at, SECOND)
    at.plans.clear()
    ask(at, FIRST)
    last_in = max(move.number for move in at.lower.done if move.kind == "in")
    assert at.plans[0].after >= last_in
    assert [plan.after for plan in at.plans[1:]] == [0] * (len(at.plans) - 1)


def test_an_answer_from_nowhere_is_a_bug() -> None:
    with pytest.raises(RuntimeError, match="answers move 7"):
        world(HOST).core.moved(m.Moved(7, b"\x01", math.inf))


def test_what_waits_when_the_disk_tells_what_it_has_begins_to_load() -> None:
    at = world(DISK, max_seqs=1)
    ask(at, FIRST)
    settle(at)
    at.submit(SECOND, 3)
    at.plan()
    waits = at.submit(FIRST, 3)
    at.restart()
    assert [move.kind for move in at.core.take_moves()] == ["load", "load"]
    assert at.streams[waits].end is None
