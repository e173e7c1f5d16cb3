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
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator, Sequence

from stretto.shm import bell
from stretto.shm.ring import RingReader, RingWriter


class Sender:
    """The sending end. Owns the three descriptors: `memory_fd` is closed at once, the bells by `close`."""

    def __init__(self, memory_fd: int, items_fd: int, space_fd: int) -> None:
        self._ring = RingWriter(memory_fd)
        os.close(memory_fd)
        self._items, self._space = items_fd, space_fd
        self._queue: deque[bytes] = deque()

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
        oversize = len(payload) > self._ring.max_record  # try_push says so, even while others wait
        if (oversize or not self._queue) and self._ring.try_push(payload):
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
        return self._ring.published() != self._ring.position

    def hear(self) -> None:
        """Silence the bell."""
        bell.hear(self._items)

    def drain(self) -> Iterator[bytes]:
        """The records published before this call; for later ones the bell rings again.

        Exhaust it: the bell does not ring twice for a record. Raises RingCorrupt.
        """
        ring = self._ring
        end = ring.published()
        while self._ring is ring and ring.position < end and (payload := ring.try_pop()) is not None:
            if ring.position >= self._next_ring:
                self._next_ring = self._next_quarter()
                bell.ring(self._space)
            yield payload

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
    where a core has nothing else to do. Bells are left as they are, so the next sleep may end at once.
    """
    clock = time.perf_counter
    until = clock() + seconds
    while clock() < until:
        for receiver in receivers:
            if receiver.ready:
                return True
    return False
