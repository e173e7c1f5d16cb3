from __future__ import annotations

from collections import Counter

import pytest

from stretto.roles.scheduler.tiers_host import HostPages
from stretto.tests.roles.scheduler.tiering import key, keys


def filled(*numbers: int) -> tuple[HostPages, list[bytes]]:
    """As many pages as numbers, and where dropped keys are told."""
    gone: list[bytes] = []
    host = HostPages(len(numbers), gone.append)
    for number, page in zip(numbers, host.take(len(numbers)), strict=True):
        host.put(key(number), page)
    return host, gone


def test_the_pages_used_longest_ago_are_given_away() -> None:
    host, gone = filled(1, 2, 3)
    host.touch(keys(2, 1))
    assert list(host.newest()) == keys(2, 1, 3)
    assert host.take(2) == [2, 0]
    assert (gone, host.evicted, len(host)) == (keys(3, 1), 2, 1)


def test_a_page_that_two_hold_stays_until_both_have_let_go() -> None:
    host, gone = filled(1)
    host.hold(keys(1))
    host.hold(keys(1))
    host.let_go(keys(1))
    assert (host.take(1), gone) == ([], [])
    host.check([], Counter(keys(1)))
    host.let_go(keys(1))
    assert (host.take(1), gone) == ([0], keys(1))


def test_a_page_that_was_not_filled_is_free_again() -> None:
    host, _ = filled(1)
    (page,) = host.take(1)
    host.check([page], Counter())
    assert host.free == 0
    host.give_back(page)
    host.check([], Counter())
    assert host.free == 1


def test_all_but_what_is_held_is_given_up() -> None:
    host, gone = filled(1, 2)
    host.hold(keys(2))
    host.clear()
    assert (list(host.newest()), gone, host.free) == (keys(2), keys(1), 1)


def test_lost_pages_and_forgotten_holds_are_found() -> None:
    host, _ = filled(1, 2)
    host.hold(keys(1))
    with pytest.raises(AssertionError, match="should be Counter"):
        host.check([], Counter())
    host.let_go(keys(1))
    host.take(1)
    with pytest.raises(AssertionError, match="lost or twice there"):
        host.check([], Counter())
