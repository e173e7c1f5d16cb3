"""The zmq edges of the roles behind the gateways: a mailbox, and a way to each peer. Neither ever blocks.

A PUSH socket connects on its own time and keeps what is sent meanwhile, so a gateway may come up late or be
replaced: its successor gets what was meant for it and drops the uids it does not know. A gateway that takes
nothing is declared dead by its heartbeat long before `HIGH_WATER` is reached, so a live one never misses an
event; beyond it messages are dropped, because a blocked loop would hurt all the others.
"""

from __future__ import annotations

import zmq

HIGH_WATER = 32_768
"""Messages kept for one gateway: half a minute of one each millisecond."""


class Mailbox:
    """PULL socket that never blocks. `fd` becomes readable when messages may have come: then call `hear`."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> None:
        self._socket = context.socket(zmq.PULL)
        self._socket.linger = 0
        self._socket.bind(endpoint)
        self.fd: int = self._socket.FD

    def hear(self) -> None:
        """Silence `fd`, which speaks again only for messages that follow an empty mailbox."""
        self._socket.getsockopt(zmq.EVENTS)

    def receive(self) -> bytes | None:
        """Next message, None when there is none yet."""
        try:
            return self._socket.recv(zmq.NOBLOCK)
        except zmq.Again:
            return None


class Outbox:
    """PUSH socket to one peer that never blocks."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> None:
        self._socket = context.socket(zmq.PUSH)
        self._socket.linger = 0
        self._socket.sndhwm = HIGH_WATER
        self._socket.connect(endpoint)

    def send(self, payload: bytes) -> bool:
        """False when the peer has taken nothing for so long that the message is dropped."""
        try:
            self._socket.send(payload, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True
