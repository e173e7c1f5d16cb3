"""What goes to the file store and comes from it, seen through the tiers."""

from __future__ import annotations

import pytest

from stretto.roles import messages as m
from stretto.roles.scheduler import tiers_disk as module
from stretto.roles.scheduler.below import Below
from stretto.roles.scheduler.tiers import Tiers
from stretto.tests.roles.scheduler.tiering import ON_DISK, done, key, keys, pages, sent


def test_pages_are_saved_once_and_held_until_the_disk_has_answered() -> None:
    tiers = Tiers(Below(host_pages=2, disk=True))
    tiers.demote(keys(1, 2), pages(5, 6))
    assert sent(tiers) == [(1, "out", [0, 1], [5, 6]), (2, "save", [1, 0], keys(2, 1))]
    assert tiers.demote(keys(3), pages(7)) == 0
    assert not done(tiers, 2, [1, 1])
    assert tiers.sizes == (2, 2)
    assert tiers.demote(keys(3, 4), pages(7, 8)) == 2
    tiers.take_moves()
    done(tiers, 4, [0, 1])
    assert tiers.demote(keys(1), pages(9)) == 1
    assert [move[1] for move in sent(tiers)] == ["out"]


def test_so_much_is_saved_at_once_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAVES_IN_FLIGHT", 2)
    monkeypatch.setattr(module, "DISK_BATCH", 1)
    tiers = Tiers(ON_DISK)
    tiers.demote(keys(1, 2, 3, 4), pages(1, 2, 3, 4))
    assert [move[3] for move in sent(tiers)[1:]] == [keys(4), keys(3)]
    done(tiers, 2, [1])
    assert [move[3] for move in sent(tiers)] == [keys(2)]


def test_under_write_back_the_disk_waits_until_the_host_is_nearly_full() -> None:
    tiers = Tiers(Below(host_pages=8, disk=True, write="back"))
    tiers.demote(keys(1, 2, 3, 4, 5, 6), pages(1, 2, 3, 4, 5, 6))
    assert [move[1] for move in sent(tiers)] == ["out"]
    tiers.demote(keys(7), pages(7))
    assert [move[1] for move in sent(tiers)] == ["out", "save"]


def test_what_the_disk_has_is_loaded_and_waited_for_then_it_is_on_the_host() -> None:
    tiers = Tiers(ON_DISK)
    tiers.shelved(m.Shelved(added=b"".join(keys(2, 3, 5))))
    tiers.prefetch(keys(1, 2, 3, 4, 5), 1, 5)
    assert sent(tiers) == [(1, "load", [0, 1], keys(2, 3))]
    tiers.prefetch(keys(1, 2, 3, 4, 5), 1, 5)
    assert sent(tiers) == []
    assert tiers.awaited(keys(1, 2), 1, 2)
    assert not tiers.awaited(keys(1, 2), 0, 2)
    assert done(tiers, 1, [1, 1])
    assert not tiers.awaited(keys(1, 2), 1, 2)
    assert tiers.run(keys(1, 2, 3, 4), 1, 4) == 2
    tiers.claim(keys(2))
    tiers.promote(keys(2), pages(0))
    assert (tiers.counts.disk_hit_pages, tiers.counts.host_hit_pages) == (1, 0)
    assert [move[1] for move in sent(tiers)] == ["in"]


def test_a_page_that_cannot_be_loaded_is_not_asked_for_again() -> None:
    tiers = Tiers(ON_DISK)
    tiers.shelved(m.Shelved(added=b"".join(keys(1, 2))))
    tiers.prefetch(keys(1, 2), 0, 2)
    sent(tiers)
    assert done(tiers, 1, [0, 1])
    assert tiers.run(keys(1, 2), 0, 2) == 0
    assert not tiers.awaited(keys(1, 2), 0, 2)
    tiers.prefetch(keys(1, 2), 0, 2)
    assert sent(tiers) == []
    assert tiers.sizes == (1, 1)


def test_what_the_disk_has_dropped_is_not_asked_for() -> None:
    tiers = Tiers(ON_DISK)
    tiers.shelved(m.Shelved(added=b"".join(keys(1, 2))))
    tiers.shelved(m.Shelved(gone=key(1)))
    tiers.prefetch(keys(1), 0, 1)
    assert sent(tiers) == []


def test_a_disk_found_to_be_slower_than_computing_is_left_alone_for_a_while() -> None:
    tiers = Tiers(Below(host_pages=8, disk=True, compute_seconds=1.0))
    tiers.shelved(m.Shelved(added=b"".join(keys(1, 2, 3))))
    tiers.prefetch(keys(1), 0, 1)
    sent(tiers)
    done(tiers, 1, [1], seconds=4.4)
    tiers.prefetch(keys(2), 0, 1)
    assert sent(tiers) == []
    tiers.prefetch(keys(2), 0, 1)
    assert sent(tiers) == [(2, "load", [1], keys(2))]


def test_pages_under_way_from_the_disk_are_not_copied_from_the_device_too() -> None:
    tiers = Tiers(ON_DISK)
    tiers.shelved(m.Shelved(added=key(1)))
    tiers.prefetch(keys(1), 0, 1)
    assert tiers.demote(keys(1), pages(4)) == 0


def test_in_a_hurry_all_is_saved_what_was_used_last_first() -> None:
    tiers = Tiers(Below(host_pages=8, disk=True, write="back"))
    for number in (1, 2, 3):
        tiers.demote(keys(number), pages(number))
    tiers.touch(keys(2))
    assert [move[1] for move in sent(tiers)] == ["out", "out", "out"]
    tiers.hurry()
    (save,) = sent(tiers)
    assert save[1:] == ("save", [1, 2, 0], keys(2, 3, 1))
    assert tiers.unsaved == 3
    done(tiers, 4, [1, 0, 1])
    assert (tiers.unsaved, tiers.sizes) == (0, (3, 2))
