"""When requests have to have ended."""

from __future__ import annotations

import heapq

_STALE_ENTRIES = 64
"""Entries of removed uids the heap may hold before it is rebuilt, beyond one per uid."""


class Deadlines:
    """A set of uids, each with a time in `time.monotonic()` seconds."""

    def __init__(self) -> None:
        self._at: dict[int, float] = {}
        self._heap: list[tuple[float, int]] = []
        """(time, uid), also of uids that were removed."""

    def __len__(self) -> int:
        return len(self._at)

    def add(self, uid: int, at: float) -> None:
        """Watch a uid."""
        self._at[uid] = at
        if len(self._heap) > _STALE_ENTRIES + 2 * len(self._at):
            self._heap = [(at, uid) for uid, at in self._at.items()]
            heapq.heapify(self._heap)
        else:
            heapq.heappush(self._heap, (at, uid))

    def remove(self, uid: int) -> None:
        """Watch a uid no longer; nothing happens where it is not watched."""
        self._at.pop(uid, None)

    @property
    def next(self) -> float | None:
        """The earliest time, None when there is none."""
        heap = self._heap
        while heap and self._at.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def due(self, now: float) -> list[int]:
        """Uids whose time has come, earliest first; they are watched no longer."""
        uids = []
        while (at := self.next) is not None and at <= now:
            _, uid = heapq.heappop(self._heap)
            del self._at[uid]
            uids.append(uid)
        return uids
