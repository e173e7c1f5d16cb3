"""After a connection was lost: for how long to come back, when to try again, and who may come along.

Streams that the server keeps may go on for as long as it keeps them. A request that was sent and not accepted
is sent again: if the server had taken it in after all, nobody hears of that.
"""

from __future__ import annotations

import random

from stretto.roles.client.errors import ConnectionFailed, StrettoError
from stretto.roles.client.inbox import Inbox

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
"""Seconds before the first attempt, and, as each pause is twice the one before, before the later ones."""
SETTLED_SECONDS = 5.0
"""A connection that has held so long has worked, even if nothing came."""
REFUSED_SECONDS = 5.0
"""A server whose gateways are replaced still listens; one that has not for so long is gone."""
UNACCEPTED_SECONDS = 10.0
MAX_SENDS = 3
"""A request that was sent so often just before a loss may be its cause."""


class Comeback:
    """The state of one connection that is opened again and again."""

    def __init__(self, listens_for_good: bool = False) -> None:
        """`listens_for_good`: where nobody listens now nobody will again, as on a private Unix socket."""
        self._refused_seconds = 0.0 if listens_for_good else REFUSED_SECONDS
        self._opened: float | None = None
        self._lost: float | None = None
        self._error: StrettoError | None = None
        self._pauses = 0

    def opened(self, now: float) -> None:
        """A connection is open."""
        self._opened = now

    def heard(self) -> None:
        """It works: something came."""
        self._lost, self._pauses = None, 0

    def lost(self, error: StrettoError, now: float) -> None:
        """It was lost, or could not be opened."""
        if self._opened is not None and (self._lost is None or now - self._opened > SETTLED_SECONDS):
            self._lost, self._pauses = now, 0
        self._opened, self._error = None, error

    def allows(self, inbox: Inbox, now: float) -> bool:
        """Whether a request may still go on."""
        if self._lost is None or not isinstance(self._error, ConnectionFailed):
            return False
        gone, code = now - self._lost, self._error.code
        if code == "cannot_connect" and gone >= self._refused_seconds:
            return False
        if code not in ("cannot_connect", "connection_lost", "timeout"):
            return False
        if inbox.handle is not None:
            return gone < inbox.kept_seconds
        return not (inbox.accepted or inbox.told) and inbox.sends < MAX_SENDS and gone < UNACCEPTED_SECONDS

    def pause(self) -> float:
        """Seconds until the next attempt; different for each client, lest all come at once."""
        longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2**self._pauses)
        self._pauses += 1
        return longest * random.uniform(0.5, 1.0)
