"""One WebSocket shared by all requests of a client: opened when it is needed, and again after a loss."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections import deque
from contextlib import suppress
from typing import Any, NoReturn

import msgspec
from websockets.asyncio.client import ClientConnection, connect, unix_connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.frames import Close, CloseCode

from stretto.roles.client import frames
from stretto.roles.client.address import NOTHING_LISTENS, Address
from stretto.roles.client.comeback import Comeback
from stretto.roles.client.errors import ConnectionFailed, StrettoError, from_object
from stretto.roles.client.inbox import Inbox

MAX_FRAME_BYTES = 64 << 20
"""Largest frame accepted: a whole answer with its own and its prompt's token ids."""
NOT_FOUND = "stream_not_found"
CLOSE_SECONDS = 1.0
"""How long a close waits for the server's half of the handshake."""


class Link:
    """Carries frames out in order and sorts frames in by id. Everything happens on one event loop.

    When the socket is lost, a new one is opened and every request goes on where it was, for as long as the
    server keeps it: its reader notices a pause.
    """

    def __init__(self, address: Address, api_key: str | None) -> None:
        self._address = address
        self._api_key = api_key
        self._ids = itertools.count(1)
        self._inboxes: dict[str, Inbox] = {}
        self._outbox: deque[str] = deque()
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._comeback = Comeback(listens_for_good=address.uds is not None)

    def submit(self, request: dict[str, Any]) -> Inbox:
        """Send a request; returns where its answer arrives. Raises `StrettoError` if JSON cannot carry it."""
        inbox = Inbox(str(next(self._ids)), request)
        self._post(frames.generate(inbox.id, request))
        self._inboxes[inbox.id] = inbox
        return inbox

    def cancel(self, id: str) -> None:
        """Ask the server to end a request, which then finishes with "abort"; nothing if it has ended."""
        if id in self._inboxes:
            self._inboxes[id].cancelled = True
            self._post(frames.cancel(id))

    def abandon(self, id: str) -> None:
        """Cancel a request whose consumer has left: what still arrives for it is dropped."""
        self.cancel(id)
        self._inboxes.pop(id, None)

    async def close(self) -> None:
        """Close the socket; live requests fail."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _post(self, frame: str) -> None:
        self._outbox.append(frame)
        self._wanted.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        error = ConnectionFailed("the client was closed", "client_closed")
        try:
            while True:
                await self._wanted.wait()
                await self._recover(await self._converse())
        finally:
            self._fail_all(error)

    async def _recover(self, error: StrettoError) -> None:
        """After a loss: what may not go on fails with it; the rest does, after a pause."""
        now = time.monotonic()
        self._comeback.lost(error, now)
        for inbox in list(self._inboxes.values()):
            if not self._comeback.allows(inbox, now):
                del self._inboxes[inbox.id]
                inbox.fail(error)
        if self._inboxes:
            await asyncio.sleep(self._comeback.pause())
        self._outbox.clear()
        for inbox in self._inboxes.values():
            self._begin(inbox)
        if not self._outbox:
            self._wanted.clear()

    def _begin(self, inbox: Inbox) -> None:
        self._outbox.append(inbox.first_frame())
        if inbox.cancelled:
            self._outbox.append(frames.cancel(inbox.id))
        self._wanted.set()

    async def _converse(self) -> StrettoError:
        """Open a socket and use it until it is lost; returns why."""
        try:
            async with self._connect() as socket:
                await self._exchange(socket)
        except (OSError, WebSocketException, msgspec.MsgspecError) as error:
            return _explain(error, self._address)

    def _connect(self) -> connect:
        options: dict[str, Any] = {
            "additional_headers": {"Authorization": f"Bearer {self._api_key}"} if self._api_key else None,
            "compression": None,  # costs more time than it saves on small frames
            "max_size": MAX_FRAME_BYTES,
            "close_timeout": CLOSE_SECONDS,
        }
        if self._address.uds:
            return unix_connect(self._address.uds, self._address.websocket, **options)
        if self._address.is_local:
            options["proxy"] = None
        return connect(self._address.websocket, **options)

    async def _exchange(self, socket: ClientConnection) -> NoReturn:
        self._comeback.opened(time.monotonic())
        writer = asyncio.create_task(self._write(socket))
        try:
            while True:
                self._sort(frames.decode(await socket.recv(decode=False)))
                self._comeback.heard()
        finally:
            writer.cancel()

    async def _write(self, socket: ClientConnection) -> None:
        with suppress(ConnectionClosed):  # the reading side tells it
            while True:
                while self._outbox:
                    await socket.send(self._outbox.popleft())
                self._wanted.clear()
                await self._wanted.wait()

    def _sort(self, frame: frames.Frame) -> None:
        if isinstance(frame, frames.Error) and frame.id is None:
            self._fail_all(frames.failure(frame))
            return
        inbox = self._inboxes.get(frame.id or "")
        match frame, inbox:
            case _, None:
                return  # abandoned
            case frames.Accepted(), Inbox():
                inbox.accept(frame)
            case frames.Error(), Inbox() if frame.error.get("code") == NOT_FOUND and inbox.forgotten():
                self._begin(inbox)
            case frames.Delta(), Inbox():
                inbox.put(frame)
            case frames.Done(), Inbox():
                del self._inboxes[inbox.id]
                inbox.finish(frame)
            case frames.Error(), Inbox():
                del self._inboxes[inbox.id]
                inbox.fail(frames.failure(frame))

    def _fail_all(self, error: StrettoError) -> None:
        inboxes = list(self._inboxes.values())
        self._inboxes.clear()
        self._outbox.clear()
        self._wanted.clear()
        for inbox in inboxes:
            inbox.fail(error)


def _explain(error: Exception, address: Address) -> StrettoError:
    """Say what happened to a connection, and what to do."""
    match error:
        case InvalidStatus():
            status = error.response.status_code
            fallback = f"{address} answered with HTTP status {status}"
            return from_object(_error_object(error.response.body), status, fallback)
        case ConnectionClosed():
            return _loss(error.rcvd, error, address)
        case TimeoutError():
            return ConnectionFailed(f"{address} does not answer", "timeout")
        case OSError():
            return ConnectionFailed(f"{NOTHING_LISTENS.format(address)} ({error})", "cannot_connect")
        case _:
            return ConnectionFailed(f"{address} does not speak Stretto's protocol: {error}", "protocol")


def _loss(last: Close | None, error: Exception, address: Address) -> StrettoError:
    if last is not None and last.code == CloseCode.MESSAGE_TOO_BIG:
        message = f"a request was larger than {address} takes; shorten it, or raise --max-body-bytes there"
        return ConnectionFailed(message, "request_too_large")  # which request, the server does not say
    reason = last.reason if last is not None and last.reason else error
    return ConnectionFailed(
        f"the connection to {address} was lost ({reason}); requests may be sent again", "connection_lost"
    )


def _error_object(body: bytes | bytearray) -> Any:
    with suppress(ValueError):
        answer = json.loads(body)
        return answer.get("error") if isinstance(answer, dict) else None
    return None
