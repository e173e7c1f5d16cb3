"""The prefix tree in numbers."""

from __future__ import annotations

from stretto.roles import messages as m
from stretto.tests.roles.scheduler.device import World


def test_a_summary_counts_tokens_nodes_and_salts_and_lists_the_longest_stretches() -> None:
    world = World()
    for salt, prompt in (("", [1, 2, 3, 4, 5, 6]), ("", [1, 2, 3, 4, 7]), ("ours", [1, 2])):
        world.submit(prompt, max_tokens=1, cache_salt=salt)
        world.drain()
    summary = world.core.summarize_cache()
    assert (summary.tokens, summary.nodes, summary.salts) == (4 + 2 + 1 + 2, 4, 2)
    assert (summary.pages_free, summary.pages_cached, summary.pages_owned) == world.core.pages
    stretches = [(part.start, part.tokens, part.continuations) for part in summary.largest]
    assert sorted(stretches) == [(0, 2, 0), (0, 4, 2), (4, 1, 0), (4, 2, 0)]
    assert [tokens for _, tokens, _ in stretches] == [4, 2, 2, 1]
    assert summary.largest[0] == m.CachedPrefix(0, 4, 0, 2, summary.largest[0].uses_ago)


def test_a_flush_drops_what_nobody_uses_and_nothing_else() -> None:
    world = World()
    world.submit([1, 2, 3, 4, 5], max_tokens=1)
    world.drain()
    running = world.submit([7, 8, 9], max_tokens=9)
    world.turn()
    world.turn()
    assert world.core.flush_cache() == 5
    world.core.check()
    assert world.core.summarize_cache().tokens == 3
    world.drain()
    assert world.output(running) == world.expect(running)
    world.core.flush_cache()
    assert world.core.pages == (64, 0, 0)


def test_evicted_pages_are_counted_once() -> None:
    world = World(pages=4, page_size=4)
    world.submit(list(range(8)), max_tokens=1)
    world.drain()
    world.submit(list(range(20, 32)), max_tokens=1)
    world.drain()
    assert world.core.take_counts().evicted_pages == 2
    assert world.core.take_counts().evicted_pages == 0
