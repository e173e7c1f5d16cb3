"""Cancels that a death may have taken along are known."""

from __future__ import annotations

from stretto.roles.gateway import cancels
from stretto.roles.gateway.cancels import Cancels


def test_what_is_not_confirmed_is_lost_with_its_tokenizer_or_any_scheduler() -> None:
    open = Cancels()
    for uid in (1, 2, 3):
        open.add(uid, uid % 2)
    open.confirm(3)
    assert list(open.lost("tokenizer", 1)) == [(1, 1)]
    assert list(open.lost("scheduler", 0)) == [(1, 1), (2, 0)]
    assert list(open.lost("detokenizer", 0)) == []


def test_the_oldest_is_forgotten() -> None:
    open = Cancels()
    for uid in range(cancels.MOST + 1):
        open.add(uid, 0)
    open.add(1, 0)
    assert (len(open), next(iter(open.lost("scheduler", 0)))) == (cancels.MOST, (2, 0))
