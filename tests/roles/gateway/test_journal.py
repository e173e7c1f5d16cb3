"""What comes again is cut to what is news."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stretto.roles.gateway.journal import Account, Gap
from stretto.roles.messages import Event, TokenInfo, Usage
from stretto.tests.roles.gateway.house import ids

TEXTS = ["ab", "", "c", "def"]
"""What becomes certain with each token; the end brings "g"."""
INFOS = [TokenInfo(i, "x", b"x", -1.0, 1, []) for i in range(len(TEXTS))]


def event(start: int, stop: int, end: bool = False) -> Event:
    """The event of the tokens [start, stop), as a run of them all would cut it."""
    return Event(
        1,
        start,
        "".join(TEXTS[start:stop]) + ("g" if end else ""),
        ids(*range(start, stop)),
        "stop" if end else None,
        usage=Usage(3, stop) if end or start == 0 else None,
        logprobs=INFOS[start:stop],
        prompt_logprobs=[None] if start == 0 else None,
        prompt_text="P" if start == 0 else None,
        offset=len("".join(TEXTS[:start])),
    )


def test_fresh_events_pass_as_they_are() -> None:
    account = Account()
    first, rest = event(0, 1), event(1, 4, end=True)
    assert account.take(first) is first
    assert account.take(rest) is rest
    assert (account.tokens, account.characters, account.ids) == (4, 7, ids(0, 1, 2, 3))


def test_a_repetition_is_no_news() -> None:
    account = Account()
    account.take(event(0, 3))
    assert account.take(event(0, 2)) is None
    assert account.take(event(1, 3)) is None


def test_of_an_event_that_overlaps_the_rest_is_left() -> None:
    account = Account()
    account.take(event(0, 1))
    news = account.take(event(0, 4))
    assert news is not None
    assert (news.index, news.offset, news.text, news.token_ids) == (1, 2, "cdef", ids(1, 2, 3))
    assert (news.logprobs, news.prompt_logprobs, news.prompt_text) == (INFOS[1:], None, None)
    assert news.usage is None


def test_the_end_comes_through_however_much_of_it_is_known() -> None:
    account = Account()
    account.take(event(0, 4))
    news = account.take(event(0, 4, end=True))
    assert news is not None
    assert (news.text, news.token_ids, news.finish_reason, news.usage) == ("g", b"", "stop", Usage(3, 4))


def test_what_is_missing_is_noticed() -> None:
    with pytest.raises(Gap):
        Account().take(event(1, 2))


def test_who_comes_back_is_served_from_where_it_was() -> None:
    account = Account(tokens=2)
    with pytest.raises(Gap):
        account.take(event(0, 4))  # its characters are not known yet
    with pytest.raises(Gap):
        account.take(event(3, 4))
    assert account.take(event(2, 3)) == event(2, 3)
    news = account.take(event(0, 4))
    assert news is not None
    assert (news.text, news.token_ids, account.characters, account.ids) == ("def", ids(3), 6, b"")


cuts = st.lists(st.integers(0, 4), max_size=3).map(lambda cuts: sorted({0, 4, *cuts}))


@given(st.lists(st.tuples(cuts, st.integers(0, 5)), max_size=4))
def test_runs_that_break_off_add_up_to_one(runs: list[tuple[list[int], int]]) -> None:
    account, said = Account(), list[Event]()
    for points, survived in [*runs, ([0, 4], 9)]:
        for start, stop in list(itertools.pairwise(points))[:survived]:
            news = account.take(event(start, stop, end=stop == 4 and survived == 9))
            said += [] if news is None else [news]
    assert "".join(news.text for news in said) == "abcdefg"
    assert b"".join(news.token_ids for news in said) == ids(0, 1, 2, 3)
    assert [info for news in said for info in news.logprobs] == INFOS
    assert [news.prompt_text for news in said] == ["P"] + [None] * (len(said) - 1)
    assert [news.finish_reason for news in said if news.finish_reason] == ["stop"]
