"""Clients that do not read what they asked for: their own streams wait, then they are cut."""

from __future__ import annotations

import weakref

from stretto.roles.gateway.stream import Inbox
from stretto.roles.metrics import Meter


class Readers:
    """All connections that wait for events, and the limits on what is kept for one of them."""

    def __init__(self, meter: Meter, seconds: float = 0.0, max_bytes: int = 0) -> None:
        """A reader may take nothing for so many seconds, and leave so many bytes; 0: no limit."""
        self._meter, self._seconds, self._max_bytes = meter, seconds, max_bytes
        self._progress: weakref.WeakKeyDictionary[Inbox, tuple[int, float]] = weakref.WeakKeyDictionary()
        """How much each had taken, and since when it has taken no more of what there is."""

    def watch(self, inbox: Inbox) -> None:
        """From now on, for as long as it is in use."""
        self._progress.setdefault(inbox, (-1, 0.0))

    def cut_slow(self, now: float) -> None:
        """Cut whoever has taken nothing for too long, or leaves too much; to be called now and then."""
        for inbox, (taken, since) in list(self._progress.items()):
            if not inbox.waits or inbox.taken != taken:
                self._progress[inbox] = inbox.taken, now
            elif self._seconds and now - since >= self._seconds:
                self._cut(inbox)
            if self._max_bytes and inbox.pending > self._max_bytes:
                self._cut(inbox)

    def _cut(self, inbox: Inbox) -> None:
        if self._progress.pop(inbox, None) is not None:
            self._meter.add("slow_readers_total")
            inbox.cut()
