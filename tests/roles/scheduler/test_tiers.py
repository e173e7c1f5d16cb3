"""What is known of the lower tiers, and the moves that follow from it."""

from __future__ import annotations

import pytest

from stretto.roles import messages as m
from stretto.roles.scheduler.below import Below
from stretto.roles.scheduler.tiers import Tiers
from stretto.tests.roles.scheduler.tiering import ON_DISK, done, host, key, keys, pages, sent


def test_without_host_pages_nothing_is_moved() -> None:
    tiers = Tiers(Below())
    assert tiers.demote(keys(1, 2), pages(5, 6)) == 0
    tiers.reuse(pages(5, 6))
    assert (sent(tiers), tiers.take_after(), tiers.enabled) == ([], 0, False)


def test_pages_go_out_once_and_a_plan_that_reuses_them_waits_for_it() -> None:
    tiers = host(4)
    assert tiers.demote(keys(1, 2), pages(5, 6)) == 2
    assert tiers.demote(keys(1, 2, 3), pages(5, 6, 7)) == 1
    assert sent(tiers) == [(1, "out", [0, 1], [5, 6]), (2, "out", [2], [7])]
    tiers.reuse(pages(9, 6))
    assert tiers.take_after() == 1
    assert tiers.take_after() == 0
    tiers.reuse(pages(6, 7, 5))
    assert tiers.take_after() == 2


def test_a_plan_does_not_wait_for_what_is_done() -> None:
    tiers = host(4)
    tiers.demote(keys(1), pages(5))
    tiers.demote(keys(2), pages(6))
    done(tiers, 1, [1])
    tiers.reuse(pages(5))
    assert tiers.take_after() == 0
    tiers.reuse(pages(6))
    assert tiers.take_after() == 2


def test_pages_come_in_and_the_plan_waits_for_them() -> None:
    tiers = host(4)
    tiers.demote(keys(1, 2, 3), pages(5, 6, 7))
    assert tiers.run(keys(1, 2, 3, 4), 1, 4) == 2
    assert tiers.run(keys(1, 2, 3, 4), 1, 2) == 1
    assert tiers.run(keys(9, 2), 0, 2) == 0
    tiers.claim(keys(2, 3))
    tiers.promote(keys(2, 3), pages(8, 9))
    assert sent(tiers)[-1] == (2, "in", [1, 2], [8, 9])
    assert tiers.take_after() == 2
    assert (tiers.counts.host_hit_pages, tiers.counts.promoted_pages) == (2, 2)


def test_what_is_cheaper_to_compute_is_not_fetched() -> None:
    tiers = host(4, copy_seconds=2.0, compute_seconds=1.0)
    tiers.demote(keys(1), pages(5))
    assert tiers.run(keys(1), 0, 1) == 0


def test_the_page_used_longest_ago_goes_and_within_a_sequence_the_last() -> None:
    tiers = host(3)
    tiers.demote(keys(1, 2), pages(5, 6))
    tiers.demote(keys(3), pages(7))
    tiers.demote(keys(4), pages(8))
    assert [tiers.run(keys(number), 0, 1) for number in (1, 2, 3, 4)] == [1, 0, 1, 1]
    tiers.touch(keys(1))
    tiers.demote(keys(5), pages(9))
    assert [tiers.run(keys(number), 0, 1) for number in (1, 3, 4, 5)] == [1, 0, 1, 1]
    assert tiers.counts.host_evicted_pages == 2


def test_of_a_sequence_longer_than_the_host_its_first_pages_are_kept() -> None:
    tiers = host(2)
    assert tiers.demote(keys(1, 2, 3), pages(5, 6, 7)) == 2
    assert tiers.run(keys(1, 2, 3), 0, 3) == 2


def test_claimed_pages_are_not_given_away() -> None:
    tiers = host(2)
    tiers.demote(keys(1, 2), pages(5, 6))
    tiers.claim(keys(2, 1))
    assert tiers.demote(keys(3), pages(7)) == 0
    tiers.promote(keys(2, 1), pages(8, 9))
    assert tiers.demote(keys(3), pages(7)) == 1


def test_after_a_flush_nothing_is_known_but_what_is_being_written_is_held() -> None:
    tiers = Tiers(ON_DISK)
    tiers.shelved(m.Shelved(added=key(9)))
    tiers.demote(keys(1), pages(5))
    sent(tiers)
    tiers.demote(keys(2), pages(6))
    tiers.flush()
    assert [move[1] for move in sent(tiers)] == ["out"]
    assert tiers.sizes == (1, 0)
    done(tiers, 2, [1])
    tiers.flush()
    assert tiers.sizes == (0, 0)


def test_an_answer_to_nothing_is_a_bug() -> None:
    with pytest.raises(RuntimeError, match="answers move 1, the last one was 0"):
        done(host(1), 1, [1])
