"""Times at which requests have to have ended."""

from __future__ import annotations

from stretto.roles.deadlines import Deadlines


def watch(**times: float) -> Deadlines:
    deadlines = Deadlines()
    for name, at in times.items():
        deadlines.add(int(name[1:]), at)
    return deadlines


def test_those_whose_time_has_come_are_told_once_and_in_order() -> None:
    deadlines = watch(_1=5.0, _2=3.0, _3=9.0)
    assert deadlines.next == 3.0
    assert deadlines.due(2.9) == []
    assert deadlines.due(5.0) == [2, 1]
    assert deadlines.due(5.0) == []
    assert deadlines.next == 9.0


def test_what_was_removed_is_never_due() -> None:
    deadlines = watch(_1=1.0, _2=2.0)
    deadlines.remove(1)
    deadlines.remove(77)
    assert deadlines.next == 2.0
    assert deadlines.due(10.0) == [2]
    assert deadlines.next is None


def test_a_uid_that_comes_again_has_its_new_time() -> None:
    deadlines = watch(_1=1.0)
    deadlines.remove(1)
    deadlines.add(1, 4.0)
    assert deadlines.due(3.0) == []
    assert deadlines.due(4.0) == [1]


def test_memory_does_not_grow_with_requests_that_ended_in_time() -> None:
    deadlines = watch(_0=0.5)
    for uid in range(1, 1000):
        deadlines.add(uid, 1000.0 + uid)
        deadlines.remove(uid)
    assert len(deadlines._heap) < 100
    assert deadlines.next == 0.5
