"""Streams whose clients may come back: who has them, how long they are kept, who waits for one."""

from __future__ import annotations

from stretto.roles.deadlines import Deadlines
from stretto.roles.detokenizer.stream import Stream
from stretto.roles.messages import Attach

PATIENCE = 10.0
"""Seconds that somebody who asks for an unknown stream waits: it may yet be announced, when a scheduler that
died has a successor, or its prompt is tokenized."""

MAX_BYTES = 256 << 20
"""Of the finished streams that are kept together; beyond it the oldest are forgotten."""


class Retention:
    """Keeps finished streams, and the times of those that nobody reads."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._finished: dict[int, tuple[Stream, int]] = {}
        """By uid, with its size, the one that ended first first."""
        self._held: set[int] = set()
        """Finished streams that are kept until somebody says that they need not be."""
        self._bytes, self._max_bytes = 0, max_bytes
        self._until = Deadlines()
        self._callers: dict[int, Attach] = {}
        self._patience = Deadlines()

    def __len__(self) -> int:
        """Finished streams that are kept."""
        return len(self._finished)

    @property
    def next(self) -> float | None:
        """When something is over, `time.monotonic()` seconds."""
        times = [at for at in (self._until.next, self._patience.next) if at is not None]
        return min(times, default=None)

    # Streams.

    def finished(self, uid: int) -> Stream | None:
        """A stream that has ended and is kept."""
        kept = self._finished.get(uid)
        return None if kept is None else kept[0]

    def keep(self, uid: int, stream: Stream, now: float) -> None:
        """The stream has ended."""
        assert stream.history is not None
        size = stream.history.size
        self._finished[uid] = stream, size
        self._bytes += size
        self._until.add(uid, now + stream.retain)
        while self._bytes > self._max_bytes:
            self.forget(next(iter(self._finished)))

    def forget(self, uid: int) -> None:
        """It is kept no longer."""
        self._until.remove(uid)
        self._held.discard(uid)
        self._bytes -= self._finished.pop(uid)[1]

    def hold(self, uid: int, gateway: int) -> None:
        """Keep a finished stream of this gateway for as long as it takes, within `max_bytes`."""
        stream = self.finished(uid)
        if stream is not None and stream.gateway == gateway:
            self._held.add(uid)
            self._until.remove(uid)

    def release(self, uid: int, gateway: int | None, now: float) -> None:
        """Its time begins, if it was held for this gateway (None: for any)."""
        stream = self.finished(uid)
        if stream is not None and uid in self._held and gateway in (None, stream.gateway):
            self._held.remove(uid)
            self._until.add(uid, now + stream.retain)

    def release_all(self, gateway: int, now: float) -> None:
        """The gateway died."""
        for uid in list(self._held):
            self.release(uid, gateway, now)

    def leave(self, uid: int, stream: Stream, now: float) -> None:
        """Nobody reads a stream that lives."""
        if stream.gateway is not None:
            stream.left, stream.gateway = stream.gateway, None
        self._until.add(uid, now + stream.retain)

    def back(self, uid: int) -> None:
        """Somebody reads it, or it has ended."""
        self._until.remove(uid)

    def over(self, now: float) -> list[int]:
        """Streams whose time is over; those that live are for the caller to end."""
        uids = self._until.due(now)
        live = [uid for uid in uids if uid not in self._finished]
        for uid in set(uids).difference(live):
            self.forget(uid)
        return live

    # Who asks for one that is not there.

    def wait(self, call: Attach, now: float) -> Attach | None:
        """Somebody waits for a stream; returns who did so before, and shall not any more."""
        before = self._callers.get(call.uid)
        self._callers[call.uid] = call
        self._patience.add(call.uid, now + PATIENCE)
        return before

    def caller(self, uid: int, key: int) -> Attach | None:
        """Who waits for the stream that is announced now, and knows its key."""
        call = self._callers.get(uid)
        if call is None or call.key != key:
            return None
        self._patience.remove(uid)
        return self._callers.pop(uid)

    def impatient(self, now: float) -> list[Attach]:
        """Those who have waited long enough."""
        return [self._callers.pop(uid) for uid in self._patience.due(now)]
