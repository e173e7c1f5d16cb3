"""The asynchronous client: many requests at once on one WebSocket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import msgspec

from stretto.roles.client import address
from stretto.roles.client.frames import Completion, Delta
from stretto.roles.client.inbox import Inbox
from stretto.roles.client.link import Link
from stretto.roles.messages import SamplingParams

Message = Mapping[str, Any]
"""A chat turn, e.g. `{"role": "user", "content": "Hello"}`."""


class AsyncStream:
    """A running request: iterate over it for its deltas, or await `result()`.

    Leaving the iteration early, or dropping the object, cancels the request. One consumer at a time.
    """

    def __init__(self, link: Link, inbox: Inbox) -> None:
        self._link = link
        self._inbox = inbox
        self._loop = asyncio.get_running_loop()

    @property
    def id(self) -> str:
        """Names the request on its socket."""
        return self._inbox.id

    @property
    def completion(self) -> Completion | None:
        """The whole answer, once it has ended well."""
        return self._inbox.completion

    async def __aiter__(self) -> AsyncIterator[Delta]:
        """Deltas as they come. Raises the `StrettoError` that ended the request."""
        try:
            while (delta := await self.next()) is not None:
                yield delta
        finally:
            self._link.abandon(self.id)

    async def next(self) -> Delta | None:
        """Wait for the next delta; None after the last. Raises the `StrettoError` that ended the request."""
        return await self._inbox.next()

    async def result(self) -> Completion:
        """Wait for the whole answer. Raises the `StrettoError` that ended the request."""
        try:
            return await self._inbox.result()
        finally:
            self._link.abandon(self.id)

    def cancel(self) -> None:
        """End the request early: it finishes with reason "abort" and what it had until then."""
        self._link.cancel(self.id)

    def __del__(self) -> None:
        if not self._inbox.ended:
            with suppress(RuntimeError):  # the loop is closed, and the socket with it
                self._loop.call_soon_threadsafe(self._link.abandon, self.id)


class AsyncClient:
    """A server's `/v1/stream`, for use within one event loop.

    >>> async with AsyncClient("http://127.0.0.1:8000") as client:
    ...     async for delta in client.stream("The capital of France is", max_tokens=8):
    ...         print(delta.text, end="", flush=True)

    The connection is made by the first request, and made again after it was lost: requests go on where they
    were, and their consumers notice nothing but a pause. Where that cannot be, because the server does not
    come back in time or keeps no streams (`--resume-seconds 0`), they fail with a `ConnectionFailed`, whose
    code is "connection_lost" or "cannot_connect". A consumer that reads slowly holds up
    nobody: its unread deltas merge, so a request needs at most the memory of its own answer.
    """

    def __init__(
        self, url: str = address.DEFAULT_URL, api_key: str | None = None, *, uds: str | None = None
    ) -> None:
        self._link = Link(address.parse(url, uds), api_key)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; requests still running are cancelled."""
        await self._link.close()

    def stream(
        self,
        prompt: str | Sequence[int] | None = None,
        *,
        messages: Sequence[Message] | None = None,
        params: SamplingParams | None = None,
        **fields: Any,
    ) -> AsyncStream:
        """Submit a request and return its stream; sending starts at once.

        Args:
            prompt: text or token ids to continue.
            messages: a conversation to answer, instead of `prompt`.
            params: sampling parameters; `fields` override them.
            fields: any other field of the HTTP API's request body, e.g. `model`, `seed`, `return_token_ids`.

        Raises:
            ValueError: not exactly one of `prompt` and `messages` is given.
            StrettoError: a value cannot be written as JSON.
        """
        return AsyncStream(self._link, self._link.submit(body(prompt, messages, params, fields)))

    async def generate(
        self,
        prompt: str | Sequence[int] | None = None,
        *,
        messages: Sequence[Message] | None = None,
        params: SamplingParams | None = None,
        **fields: Any,
    ) -> Completion:
        """Submit a request as `stream` does and wait for the whole answer, which arrives in one frame.

        Raises the `StrettoError` that ended the request; being cancelled cancels the request.
        """
        fields = {"stream": False, **fields}
        return await self.stream(prompt, messages=messages, params=params, **fields).result()


def body(
    prompt: str | Sequence[int] | None,
    messages: Sequence[Message] | None,
    params: SamplingParams | None,
    fields: Mapping[str, Any],
) -> dict[str, Any]:
    """The request body of the HTTP API; of `params`, what is not the default."""
    if (prompt is None) == (messages is None):
        raise ValueError("give a prompt or messages, not both")
    request: dict[str, Any] = {}
    if prompt is not None:
        request["prompt"] = prompt if isinstance(prompt, str) else list(prompt)
    if messages is not None:
        request["messages"] = list(messages)
    for name, default in _DEFAULTS.items():
        if params is not None and (value := getattr(params, name)) != default:
            request[name] = value
    if messages is not None and "logprobs" in request:
        request |= {"logprobs": True, "top_logprobs": request["logprobs"]}
    return request | dict(fields)


_DEFAULTS = msgspec.structs.asdict(SamplingParams())
