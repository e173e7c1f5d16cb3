"""What is known of the lower tiers, and the moves that follow from it."""

from __future__ import annotations

import numpy as np
import pytest

from stretto.roles import messages as m
from stretto.roles.scheduler import tiers as module
from stretto.roles.scheduler.below import Below
from stretto.roles.scheduler.pages import Ints
from stretto.roles.scheduler.tiers import Tiers

ON_DISK = Below(host_pages=8, disk=True)


def key(number: int) -> bytes:
    return bytes([number]) * 16


def keys(*numbers: int) -> list[bytes]:
    return [key(number) for number in numbers]


def pages(*numbers: int) -> Ints:
    return np.array(numbers, np.int32)


def shown(move: m.Move) -> tuple[int, str, list[int], list[int] | list[bytes]]:
    """(number, kind, host pages, device pages or keys)"""
    device = np.frombuffer(move.device, np.int32).tolist()
    names = [move.keys[start : start + 16] for start in range(0, len(move.keys), 16)]
    return move.number, move.kind, np.frombuffer(move.host, np.int32).tolist(), device or names


def sent(tiers: Tiers) -> list[tuple[int, str, list[int], list[int] | list[bytes]]]:
    tiers.check()
    return [shown(move) for move in tiers.take_moves()]


def done(tiers: Tiers, number: int, ok: list[int], seconds: float = 0.0) -> bool:
    return tiers.moved(m.Moved(number, bytes(ok), seconds))


def host(count: int, **more: object) -> Tiers:
    return Tiers(Below(host_pages=count, **more))  # type: ignore[arg-type]


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
