"""Channels: a ring with its two bells, as an event loop uses it. Nothing here blocks.

The items bell wakes the receiver after every push. The space bell wakes a sender that found the ring full.
The receiver does not know whether one did: it rings whenever it passes another quarter of the capacity.

Why no wake-up is lost. Let C be the capacity, T the tail, H the head that a failing push saw, r <= C/4 its
record and p < r the padding before it. It failed because T + p + r - H > C, so H < T - C/2, and it will fit
once the head has reached N = T + p + r - C < T - C/2. Let B be the last multiple of C/4 that is <= T. Then
H < N < B <= T: the receiver, woken by the last push, still has to pass B, rings after it, and by then the
record fits. Whoever hears that ring sees the head that caused it (`shm.bell`), and `hear` silences the bell
before it looks, so a ring is either still audible or its head was seen. The argument does not use how old
the view H was, and it holds for several readers, of which the last to pass B rings last.

A receiver that looks at its rings by itself (`spin`) keeps a vigil, and its sender then spares the ring of
the items bell, a system call. Before it sleeps it ends the vigil, has every sender pass a barrier
(`shm.membarrier`), and looks once more (`rest`). A sender publishes, then looks for the vigil. If that second
access comes after the barrier it sees that the vigil is over, and rings; if before, so does the first, and
the last look sees the record. Nothing changes where either side cannot have that barrier.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator, Sequence

from stretto.shm import bell, membarrier
from stretto.shm.ring import RingReader, RingWriter


class Sender:
    """The sending end. Owns the three descriptors: `memory_fd` is closed at once, the bells by `close`."""

    def __init__(self, memory_fd: int, items_fd: int, space_fd: int) -> None:
        self._ring = RingWriter(memory_fd)
        os.close(memory_fd)
        self._items, self._space = items_fd, space_fd
        self._queue: deque[bytes] = deque()
        self._heeds_vigils = membarrier.join()

    @property
    def name(self) -> str:
        """Of the ring."""
        return self._ring.name

    @property
    def position(self) -> int:
        """Where the last published record ends; its receiver is there when it has got it."""
        return self._ring.position

    @property
    def bell_fd(self) -> int:
        """Readable when there may be space again: then call `hear`."""
        return self._space

    @property
    def blocked(self) -> bool:
        """The ring is full and something waits here: stop producing until this is False."""
        return bool(self._queue)

    @property
    def pending(self) -> int:
        """Records that wait here for space."""
        return len(self._queue)

    def send(self, payload: bytes) -> None:
        """Publish, or keep in order until there is space. Raises ValueError beyond `max_record` bytes."""
        ring = self._ring
        if self._queue and len(payload) <= ring.max_record:  # try_push refuses what is larger
            self._queue.append(payload)
        elif ring.try_push(payload):
            if not (self._heeds_vigils and ring.watched()):
                bell.ring(self._items)
        else:
            self._queue.append(payload)

    def hear(self) -> None:
        """Silence the bell and publish what fits by now."""
        bell.hear(self._space)
        waiting = len(self._queue)
        while self._queue and self._ring.try_push(self._queue[0]):
            self._queue.popleft()
        if len(self._queue) < waiting:
            self._announce()

    def _announce(self) -> None:
        if not (self._heeds_vigils and self._ring.watched()):
            bell.ring(self._items)

    def replace(self, other: Sender) -> None:
        """Become `other` (a fresh ring after a crash), dead from then on; what is pending is lost."""
        self.close()
        self._ring, self._items, self._space = other._ring, other._items, other._space
        self._queue = other._queue

    def close(self) -> None:
        """Let go of the ring and the bells; what is pending is dropped."""
        self._ring.close()
        os.close(self._items)
        os.close(self._space)
        self._queue.clear()


class Receiver:
    """The receiving end. Owns the three descriptors: `memory_fd` is closed at once, the bells by `close`."""

    def __init__(self, memory_fd: int, items_fd: int, space_fd: int) -> None:
        self._ring = RingReader(memory_fd)
        os.close(memory_fd)
        self._items, self._space = items_fd, space_fd
        self._next_ring = self._next_quarter()

    @property
    def name(self) -> str:
        """Of the ring."""
        return self._ring.name

    @property
    def position(self) -> int:
        """Where the last received record ends."""
        return self._ring.position

    @property
    def bell_fd(self) -> int:
        """Readable when there may be records: then call `hear`, and after it `drain`."""
        return self._items

    @property
    def ready(self) -> bool:
        """Whether `drain` would bring anything."""
        return self._ring.behind()

    def keep_vigil(self, keep: bool) -> None:
        """Whether the sender may spare the ring of the bell: see `spin` and `rest`."""
        self._ring.keep_vigil(keep)

    def hear(self) -> None:
        """Silence the bell."""
        bell.hear(self._items)

    def drain(self) -> Iterator[bytes]:
        """The records published before this call; for later ones the bell rings again, if nobody spins.

        Exhaust it: the bell does not ring twice for a record. Raises RingCorrupt.
        """
        self._ring.published()
        return iter(self._take, None)

    def receive(self) -> bytes | None:
        """The next record, for who wants one at a time; None when there is none. Raises RingCorrupt."""
        self._ring.published()
        return self._take()

    def _take(self) -> bytes | None:
        ring = self._ring
        payload = ring.pop_seen()
        if ring.position >= self._next_ring:
            self._next_ring = self._next_quarter()
            bell.ring(self._space)
        return payload

    def _next_quarter(self) -> int:
        quarter = self._ring.capacity // 4
        return (self._ring.position // quarter + 1) * quarter

    def replace(self, other: Receiver) -> None:
        """Become `other` (a fresh ring after a crash), dead from then on; what is unread is lost."""
        self.close()
        self._ring, self._items, self._space = other._ring, other._items, other._space
        self._next_ring = other._next_ring

    def close(self) -> None:
        """Let go of the ring and the bells."""
        self._ring.close()
        os.close(self._items)
        os.close(self._space)


def spin(receivers: Sequence[Receiver], seconds: float) -> bool:
    """Look at the rings until one has something; False after `seconds`.

    Saves the microseconds that falling asleep and being woken take, and burns a core for it: worth it only
    where a core has nothing else to do. From now on a bell may stay silent: call `rest` before you sleep.
    Bells that have rung are left as they are, so the next sleep may end at once.
    """
    if membarrier.join():
        for receiver in receivers:
            receiver.keep_vigil(True)
    clock = time.perf_counter
    until = clock() + seconds
    rings = [receiver._ring for receiver in receivers]
    while True:
        for ring in rings:
            if ring.behind():
                return True
        if clock() >= until:
            return False


def rest(receivers: Sequence[Receiver]) -> bool:
    """The bells ring for all that comes from now on; True when something came before: do not sleep yet."""
    if membarrier.join():
        for receiver in receivers:
            receiver.keep_vigil(False)
        membarrier.everywhere()
    return any(receiver.ready for receiver in receivers)
