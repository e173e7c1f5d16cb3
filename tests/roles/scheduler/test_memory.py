"""Placement: what is reused, what is copied, what has to go."""

from __future__ import annotations

import numpy as np

from stretto.roles.scheduler.below import NOTHING_BELOW, Below
from stretto.roles.scheduler.keys import Chain
from stretto.roles.scheduler.limits import Limits
from stretto.roles.scheduler.memory import Memory, Placement
from stretto.roles.scheduler.pages import Ints


def memory(pages: int, page_size: int = 4, below: Below = NOTHING_BELOW) -> Memory:
    return Memory(Limits(pages, page_size, max_seqs=4, max_batched_tokens=8, max_model_len=64, below=below))


def array(values: list[int] | range) -> Ints:
    return np.array(values, np.int32)


def find(memory: Memory, tokens: Ints, spare: int) -> Placement | None:
    return memory.place(tokens, len(tokens) - 1, spare, Chain())


def leave(memory: Memory, tokens: Ints) -> None:
    """A sequence with these tokens ran and ended."""
    placement = find(memory, tokens, spare=0)
    assert placement is not None
    pages = memory.occupy(placement)
    memory.release(placement.source)
    memory.keep(tokens, pages, Chain())
    memory.release(pages)
    memory.tree.unpin(placement.node)


def test_whole_pages_are_shared_and_a_partial_one_is_copied() -> None:
    kv = memory(pages=8)
    leave(kv, array(range(10)))
    placement = find(kv, array([*range(10), 99, 98]), spare=0)
    assert placement is not None
    assert placement.length == 10
    assert placement.shared.tolist() == [0, 1]
    assert placement.source.tolist() == [2]
    assert placement.fresh == 1
    assert kv.occupy(placement).tolist() == [0, 1, 3]
    assert (kv.pool.free, kv.pool.cached, kv.pool.owned) == (4, 0, 4)


def test_a_copy_that_would_not_fit_is_computed_instead() -> None:
    kv = memory(pages=3)
    leave(kv, array(range(10)))
    placement = find(kv, array([*range(10), 99]), spare=0)
    assert placement is not None
    assert placement.length == 8
    assert placement.source.size == 0
    assert placement.fresh == 1
    assert kv.occupy(placement).tolist() == [0, 1, 2]


def test_nothing_is_placed_into_spare_pages_or_beyond_the_pool() -> None:
    kv = memory(pages=3)
    assert find(kv, array(range(8)), spare=1) is not None
    assert find(kv, array(range(8)), spare=2) is None
    assert find(kv, array(range(13)), spare=0) is None


def test_looking_for_a_place_changes_nothing() -> None:
    kv = memory(pages=8)
    leave(kv, array(range(10)))
    first = find(kv, array(range(10)), spare=0)
    second = find(kv, array(range(10)), spare=0)
    assert str(first) == str(second)
    assert (kv.pool.free, kv.pool.cached) == (5, 3)


def test_pages_come_from_the_cache_when_none_are_free() -> None:
    kv = memory(pages=4)
    leave(kv, array(range(8)))
    leave(kv, array(range(50, 54)))
    assert kv.available == 4
    kv.take(2)
    assert kv.tree.match(array(range(8))).length == 0
    assert kv.tree.match(array(range(50, 54))).length == 4


def test_pinned_prefixes_go_last_but_they_go() -> None:
    kv = memory(pages=4)
    leave(kv, array([1, 2, 3]))
    placement = find(kv, array([1, 2, 9]), spare=0)
    assert placement is not None
    kv.occupy(placement)
    kv.release(placement.source)
    leave(kv, array([7, 8]))
    kv.take(2)
    assert kv.tree.match(array([1, 2, 3])).length == 3
    assert kv.available == 1
    kv.take(1)
    assert kv.tree.match(array([1, 2, 3])).length == 0
    assert (kv.pool.free, kv.pool.cached, kv.pool.owned) == (0, 0, 4)


def test_pages_from_the_host_go_to_the_first_fresh_pages_instead_of_a_copy() -> None:
    kv = memory(pages=8, below=Below(host_pages=16))
    leave(kv, array(range(16)))
    leave(kv, array(range(50, 82)))
    leave(kv, array(range(6)))
    kv.tiers.take_moves()
    placement = find(kv, array([*range(16), 99]), spare=0)
    assert placement is not None
    assert (placement.length, len(placement.shared), placement.source.size) == (16, 1, 0)
    assert (len(placement.keys), placement.fresh) == (4, 4)
    pages = kv.occupy(placement)
    (move,) = (move for move in kv.tiers.take_moves() if move.kind == "in")
    assert np.frombuffer(move.device, np.int32).tolist() == pages[1:4].tolist()
    assert kv.tiers.take_after() == move.number


def test_where_pages_from_the_host_do_not_fit_nothing_does() -> None:
    kv = memory(pages=8, below=Below(host_pages=16))
    leave(kv, array(range(32)))
    leave(kv, array(range(50, 82)))
    assert find(kv, array(range(32)), spare=0) is not None
    assert find(kv, array(range(32)), spare=1) is None


def test_no_more_is_reused_than_may_be() -> None:
    kv = memory(pages=8)
    leave(kv, array(range(10)))
    placement = kv.place(array(range(10)), reusable=5, spare=0, chain=Chain())
    assert placement is not None
    assert placement.length == 5
    assert (placement.shared.tolist(), placement.source.tolist()) == ([0], [1])
