"""The gateway's zmq sockets: one PULL for all that comes back, one PUSH to each tokenizer and detokenizer.

Nothing here blocks or polls. The PULL socket's descriptor is edge-triggered, so it is always read until it is
empty. It has no high-water mark: a dropped event would leave a client waiting, and what arrives is merged per
request in `door`, so it stays small. The PUSH sockets have one, at which `offer` refuses.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

import msgspec
import zmq

from stretto.roles import messages as m

HIGH_WATER = 1000
"""Messages that may wait for one peer on this side of the socket, unless the queue may hold more."""
BURST = 256
"""Messages read before the loop gets to do something else."""
RETRY_SECONDS = 0.05

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(m.ToGateway)
_log = logging.getLogger(__name__)


class ZmqWires:
    """`door.Wires` over zmq; also hands what arrives to `on_message`. Made on the loop that uses it."""

    def __init__(
        self,
        inbox: str,
        tokenizers: list[str],
        detokenizers: list[str],
        on_message: Callable[[m.ToGateway], None],
        high_water: int = HIGH_WATER,
    ) -> None:
        """`high_water`: messages that may wait for one peer before `offer` refuses."""
        self._high_water = high_water
        self._on_message = on_message
        self._loop = asyncio.get_running_loop()
        self._context = zmq.Context()
        self._inbox = self._context.socket(zmq.PULL)
        self._inbox.setsockopt(zmq.RCVHWM, 0)
        self._inbox.bind(inbox)
        self._outboxes = [self._connect(address) for address in tokenizers]
        self._detokenizers = detokenizers
        self._tellers: dict[int, zmq.Socket[bytes]] = {}
        """Made when they are needed: most clients never lose their connection."""
        self._late: deque[tuple[zmq.Socket[bytes], bytes]] = deque()
        self._fd = int(self._inbox.getsockopt(zmq.FD))
        self._loop.add_reader(self._fd, self._drain)
        self._loop.call_soon(self._drain)

    def _connect(self, address: str) -> zmq.Socket[bytes]:
        socket = self._context.socket(zmq.PUSH)
        socket.setsockopt(zmq.SNDHWM, self._high_water)
        socket.connect(address)
        return socket

    def offer(self, tokenizer: int, message: m.ToTokenizer) -> bool:
        """Send; False when the tokenizer has more waiting than it can take."""
        return _send(self._outboxes[tokenizer], _encoder.encode(message))

    def post(self, tokenizer: int, message: m.ToTokenizer) -> None:
        """Send without fail, later if it cannot be now."""
        self._post(self._outboxes[tokenizer], _encoder.encode(message))

    def tell(self, detokenizer: int, message: m.ToDetokenizer) -> None:
        """Send without fail, later if it cannot be now."""
        if detokenizer not in self._tellers:
            self._tellers[detokenizer] = self._connect(self._detokenizers[detokenizer])
        self._post(self._tellers[detokenizer], _encoder.encode(message))

    def _post(self, socket: zmq.Socket[bytes], data: bytes) -> None:
        if self._late or not _send(socket, data):
            if not self._late:
                self._loop.call_later(RETRY_SECONDS, self._retry)
            self._late.append((socket, data))

    def _retry(self) -> None:
        if self._context.closed:
            return
        for _ in range(len(self._late)):
            socket, data = self._late.popleft()
            if not _send(socket, data):
                self._late.append((socket, data))
        if self._late:
            self._loop.call_later(RETRY_SECONDS, self._retry)

    def _drain(self) -> None:
        """Read all that has arrived, a burst at a time; not even an exception leaves anything unread."""
        more = not self._context.closed
        try:
            more = more and self._read_burst()
        finally:
            if more:
                self._loop.call_soon(self._drain)

    def _read_burst(self) -> bool:
        """Whether there may be more."""
        for _ in range(BURST):
            try:
                data = self._inbox.recv(zmq.NOBLOCK)
            except zmq.Again:
                return False
            self._receive(data)
        return True

    def _receive(self, data: bytes) -> None:
        try:
            message = _decoder.decode(data)
        except msgspec.DecodeError:
            _log.exception("dropped a message that is none of ours")
            return
        self._on_message(message)

    def close(self) -> None:
        """Close the sockets; what has not left yet is dropped."""
        self._loop.remove_reader(self._fd)
        self._context.destroy(linger=0)


def _send(socket: zmq.Socket[bytes], data: bytes) -> bool:
    try:
        socket.send(data, zmq.NOBLOCK)
    except zmq.Again:
        return False
    return True
