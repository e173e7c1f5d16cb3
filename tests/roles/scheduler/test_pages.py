"""The page pool's two counts."""

from __future__ import annotations

import numpy as np
import pytest

from stretto.roles.scheduler.pages import NO_PAGE, Pool


def state(pool: Pool) -> tuple[int, int, int]:
    return pool.free, pool.cached, pool.owned


def test_pages_go_from_free_to_owned_to_cached_to_free() -> None:
    pool = Pool(4)
    pages = pool.take(3)
    assert pages.tolist() == [0, 1, 2]
    assert state(pool) == (1, 0, 3)
    pool.keep(pages[:2])
    assert state(pool) == (1, 0, 3)
    pool.drop(pages)
    assert state(pool) == (2, 2, 0)
    pool.forget(pages[:1])
    assert state(pool) == (3, 1, 0)


def test_a_page_is_owned_until_its_last_user_drops_it() -> None:
    pool = Pool(2)
    pages = pool.take(1)
    pool.use(pages)
    pool.drop(pages)
    assert state(pool) == (1, 0, 1)
    pool.drop(pages)
    assert state(pool) == (2, 0, 0)


def test_a_page_is_cached_until_its_last_node_forgets_it() -> None:
    pool = Pool(2)
    pages = pool.take(1)
    pool.keep(pages)
    pool.keep(pages)
    pool.drop(pages)
    pool.forget(pages)
    assert state(pool) == (1, 1, 0)
    assert pool.idle(pages) == 1
    pool.use(pages)
    assert state(pool) == (1, 0, 1)
    assert pool.idle(pages) == 0
    pool.forget(pages)
    pool.drop(pages)
    assert state(pool) == (2, 0, 0)


def test_more_than_is_free_cannot_be_taken() -> None:
    pool = Pool(2)
    with pytest.raises(AssertionError, match="3 pages taken from 2"):
        pool.take(3)
    assert state(pool) == (2, 0, 0)


@pytest.mark.parametrize(
    ("used", "kept", "message"),
    [
        ([0, 0], [0, 0], "users differ in 1 places; at 0 there is 1, owners make it 0"),
        ([1, 0], [1, 0], "tree references differ in 1 places; at 0 there is 0, owners make it 1"),
    ],
)
def test_check_compares_with_the_owners(used: list[int], kept: list[int], message: str) -> None:
    pool = Pool(2)
    pool.take(1)
    with pytest.raises(AssertionError, match=message):
        pool.check(np.array(used, np.int32), np.array(kept, np.int32))
    pool.check(np.array([1, 0], np.int32), np.array([0, 0], np.int32))


def test_holes_in_a_list_of_pages_stand_for_nothing() -> None:
    pool = Pool(4, holes=True)
    pages = pool.take(2)
    holed = np.array([NO_PAGE, pages[0], NO_PAGE, pages[1]], np.int32)
    pool.keep(holed)
    pool.use(holed)
    assert (pool.idle(holed), pool.alone(holed)) == (0, 0)
    pool.drop(pages)
    pool.drop(holed)
    assert (pool.free, pool.cached, pool.idle(holed)) == (2, 2, 2)
    pool.forget(holed)
    assert (pool.free, pool.cached) == (4, 0)
