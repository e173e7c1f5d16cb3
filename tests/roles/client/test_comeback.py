"""How long, and who."""

from __future__ import annotations

import pytest

from stretto.roles.client import comeback
from stretto.roles.client.comeback import Comeback
from stretto.roles.client.errors import ConnectionFailed, StrettoError
from stretto.roles.client.frames import Accepted, Delta
from stretto.roles.client.inbox import Inbox

LOST = ConnectionFailed("lost", "connection_lost")
REFUSED = ConnectionFailed("refused", "cannot_connect")


def kept(seconds: float = 60.0) -> Inbox:
    inbox = Inbox("1")
    inbox.accept(Accepted("1", "handle", seconds))
    return inbox


def lost(error: StrettoError = LOST, **options: bool) -> Comeback:
    """A connection that was opened at 0, lost at 1."""
    state = Comeback(**options)
    state.opened(0.0)
    state.lost(error, 1.0)
    return state


def test_a_stream_may_go_on_for_as_long_as_it_is_kept() -> None:
    assert [lost().allows(kept(), now) for now in (1.0, 60.9, 61.0)] == [True, True, False]


def test_what_the_server_does_not_keep_ends() -> None:
    inbox = Inbox("1")
    inbox.accept(Accepted("1", None, 0.0))
    assert not lost().allows(inbox, 1.0)


def test_what_was_not_accepted_is_sent_again_a_few_times() -> None:
    inbox = Inbox("1", {})
    for _ in range(comeback.MAX_SENDS - 1):
        assert lost().allows(inbox, 1.0)
        inbox.first_frame()
    assert not lost().allows(inbox, 1.0)


def test_what_was_told_without_being_accepted_is_not() -> None:
    inbox = Inbox("1")
    inbox.put(Delta("1", "a"))
    assert not lost().allows(inbox, 1.0)


@pytest.mark.parametrize("code", ["protocol", "request_too_large", "client_closed"])
def test_what_another_connection_would_not_mend_ends_all(code: str) -> None:
    assert not lost(ConnectionFailed("no", code)).allows(kept(), 1.0)
    assert not lost(StrettoError("unauthorized", status=401)).allows(kept(), 1.0)


def test_a_server_that_never_was_there_is_not_waited_for() -> None:
    state = Comeback()
    state.lost(REFUSED, 1.0)
    assert not state.allows(Inbox("1"), 1.0)


def test_a_server_that_listens_no_more_is_gone() -> None:
    state = lost()
    state.lost(REFUSED, 2.0)
    assert [state.allows(kept(), now) for now in (5.9, 6.0)] == [True, False]
    assert not lost(REFUSED, listens_for_good=True).allows(kept(), 1.0)


def test_connections_that_break_at_once_count_as_one_loss() -> None:
    state = lost()
    for now in (10.0, 20.0):
        state.opened(now)
        state.lost(LOST, now + 1)
    assert not state.allows(kept(), 61.0)
    state.opened(70.0)
    state.heard()
    state.lost(LOST, 70.5)
    assert state.allows(kept(), 100.0)


def test_pauses_grow_to_a_bound() -> None:
    state = lost()
    pauses = [state.pause() for _ in range(12)]
    bounds = [min(comeback.LONGEST_PAUSE, comeback.FIRST_PAUSE * 2**i) for i in range(12)]
    assert all(bound / 2 <= pause <= bound for pause, bound in zip(pauses, bounds, strict=True))
