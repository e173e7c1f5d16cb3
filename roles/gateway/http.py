"""What the HTTP endpoints share: reading a body within limits, answering, noticing that the client left."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import orjson

from stretto.roles.gateway.faults import NEVER_AGAIN, error_json, refusal
from stretto.roles.gateway.stream import HungUp, Inbox
from stretto.roles.messages import Fault

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
ErrorBody = Callable[[Fault], bytes]
Headers = list[tuple[bytes, bytes]]

LINGER_SECONDS = 5.0

_STREAM_START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-cache"),
        (b"x-accel-buffering", b"no"),
    ],
}
_STATUS_HEADERS = {401: [(b"www-authenticate", b"Bearer")]}
RETRY_SECONDS = 1
"""What who is refused for want of room is told where nothing better is known."""


def header(scope: Scope, name: bytes) -> bytes | None:
    """The first header of this (lower-case) name."""
    return next((value for key, value in scope["headers"] if key == name), None)


def aborter(scope: Scope) -> Callable[[], object]:
    """What ends the connection at once, whatever is still to be sent on it."""
    abort: Callable[[], object] = scope.get("extensions", {}).get("stretto.abort", lambda: None)
    return abort


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The whole body. Raises `Refused` as soon as it is known to be over `limit` bytes, `HungUp`."""
    length = header(scope, b"content-length")
    if length is not None and int(length) > limit:
        raise _too_large(limit)
    parts, size, more = [], 0, True
    while more:
        message = await _receive_in_time(scope, receive)
        if message["type"] == "http.disconnect":
            raise HungUp
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            raise _too_large(limit)
        more = message.get("more_body", False)
    return b"".join(parts)


async def _receive_in_time(scope: Scope, receive: Receive) -> Message:
    """Raises `Refused` where the client sends nothing for too long."""
    try:
        async with asyncio.timeout(scope.get("extensions", {}).get("stretto.idle_seconds")):
            return await receive()
    except TimeoutError:
        raise refusal("The body did not come in time.", code="request_timeout", status=408) from None


def _too_large(limit: int) -> Exception:
    return refusal(f"The body is larger than {limit} bytes.", code="request_too_large", status=413)


async def hang_up_on_disconnect(receive: Receive, inbox: Inbox) -> None:
    """Wait for the client to leave, then say so to the inbox."""
    while (await receive())["type"] != "http.disconnect":
        pass
    inbox.hang_up()


async def answer(
    send: Send, status: int, body: bytes, more: bool = False, extra: Headers | None = None
) -> None:
    """Send a JSON answer. With `more`, the connection is to be closed after a last, empty `finish`."""
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += _STATUS_HEADERS.get(status, []) + (extra or [])
    if more:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def refuse(send: Send, receive: Receive, fault: Fault, body: ErrorBody = error_json) -> None:
    """Answer with an error, in the form that `body` gives it.

    A body that is too large is still on its way then. To close the connection at once would reset it and
    take the answer with it, so for a while what comes is read and thrown away (a lingering close).
    """
    oversized = fault.status == 413
    await answer(send, fault.status, body(fault), oversized, retry_headers(fault))
    if oversized:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(_discard(receive), LINGER_SECONDS)
        await finish(send)


def retry_headers(fault: Fault) -> Headers:
    """When to send the request again; or that it is of no use, in the header that OpenAI's and Anthropic's
    clients heed: by themselves they send again whatever is answered 408 or 5xx.
    """
    if fault.code in NEVER_AGAIN:
        return [(b"x-should-retry", b"false")]
    seconds = RETRY_SECONDS if fault.status == 429 and fault.retry_after is None else fault.retry_after
    return [] if seconds is None else [(b"retry-after", str(seconds).encode())]


async def _discard(receive: Receive) -> None:
    while (await receive()).get("more_body", False):
        pass


async def start_stream(send: Send) -> None:
    """The head of an answer of server-sent events."""
    await send({**_STREAM_START})  # a copy: who stands between may add headers to it


def event(name: str, data: dict[str, Any]) -> bytes:
    """A server-sent event that has a name, which its data repeats as `type`."""
    return f"event: {name}\ndata: ".encode() + orjson.dumps({"type": name, **data}) + b"\n\n"


async def write(send: Send, data: bytes, more: bool = True) -> None:
    """A piece of the answer; waits while the client is slower than we are."""
    await send({"type": "http.response.body", "body": data, "more_body": more})


async def finish(send: Send) -> None:
    """The end of an answer."""
    await write(send, b"", more=False)
