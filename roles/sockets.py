"""The zmq edges of the roles behind the gateways: a mailbox, and a way to each peer. Neither ever blocks.

A PUSH socket connects on its own time and keeps what is sent meanwhile, so a gateway may come up late or be
replaced: its successor gets what was meant for it and drops the uids it does not know. Nothing meant for a
live peer is dropped: beyond `HIGH_WATER` messages wait here, and who sends them makes no more until they are
gone. A peer that takes nothing at all is declared dead by its heartbeat long before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import zmq

HIGH_WATER = 32_768
"""Messages that zmq keeps for one peer: half a minute of one each millisecond."""

RETRY_SECONDS = 0.01
"""How often to `flush` while a peer takes nothing."""


class Mailbox:
    """PULL socket that never blocks. `fd` becomes readable when messages may have come: then call `hear`."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> None:
        self._socket = context.socket(zmq.PULL)
        self._socket.linger = 0
        self._socket.bind(endpoint)
        self.fd: int = self._socket.FD
        self._silent = False
        """It was found empty, and `fd` has said nothing since."""

    def hear(self) -> None:
        """Silence `fd`, which speaks again only for messages that follow an empty mailbox."""
        self._socket.getsockopt(zmq.EVENTS)
        self._silent = False

    def receive(self) -> bytes | None:
        """Next message, None when there is none yet; costs nothing while `fd` is silent."""
        if self._silent:
            return None
        try:
            return self._socket.recv(zmq.NOBLOCK)
        except zmq.Again:
            self._silent = True
            return None


class Outbox:
    """PUSH socket to one peer that never blocks."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> None:
        self._socket = context.socket(zmq.PUSH)
        self._socket.linger = 0
        self._socket.sndhwm = HIGH_WATER
        self._socket.connect(endpoint)
        self._waiting: deque[bytes] = deque()

    @property
    def blocked(self) -> bool:
        """The peer takes nothing: make no more for it, and `flush` until this is False."""
        return bool(self._waiting)

    def send(self, payload: bytes) -> None:
        """Send, or keep in order until the peer takes messages again."""
        if self._waiting or not self._try(payload):
            self._waiting.append(payload)

    def flush(self) -> None:
        """Send what waits, as far as the peer takes it."""
        while self._waiting and self._try(self._waiting[0]):
            self._waiting.popleft()

    def _try(self, payload: bytes) -> bool:
        try:
            self._socket.send(payload, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def close(self) -> None:
        """Drop what the peer has not taken."""
        self._waiting.clear()
        self._socket.close()


class Outboxes:
    """One for each peer of a role, made when it is first needed."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], endpoint: Callable[[int], str], count: int
    ) -> None:
        """`endpoint` gives the address of the peer with an index below `count`."""
        self._context, self._endpoint, self._count = context, endpoint, count
        self._boxes: dict[int, Outbox] = {}

    def __contains__(self, index: int) -> bool:
        """Whether there may be such a peer."""
        return 0 <= index < self._count

    def send(self, index: int, payload: bytes) -> None:
        """See `Outbox.send`."""
        box = self._boxes.get(index)
        if box is None:
            box = self._boxes[index] = Outbox(self._context, self._endpoint(index))
        box.send(payload)

    def blocked(self) -> bool:
        """Whether a peer still takes nothing after another try."""
        for box in self._boxes.values():
            box.flush()
        return any(box.blocked for box in self._boxes.values())

    def drop(self, index: int) -> None:
        """The peer died: its successor wants nothing that was meant for it."""
        box = self._boxes.pop(index, None)
        if box is not None:
            box.close()
