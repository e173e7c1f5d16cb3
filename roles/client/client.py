"""The client for ordinary, synchronous code: the asynchronous one, run on a background thread."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from stretto.roles.client import address
from stretto.roles.client.aio import AsyncClient, AsyncStream, Message
from stretto.roles.client.background import BackgroundLoop
from stretto.roles.client.frames import Completion, Delta
from stretto.roles.messages import SamplingParams


class Stream:
    """A running request: iterate over it for its deltas, or ask for its `result()`.

    Leaving the iteration early (`break`, an exception, Ctrl-C), or dropping the object, cancels the request.
    """

    def __init__(self, background: BackgroundLoop, stream: AsyncStream) -> None:
        self._background = background
        self._stream = stream

    @property
    def completion(self) -> Completion | None:
        """The whole answer, once it has ended well."""
        return self._stream.completion

    def __iter__(self) -> Iterator[Delta]:
        """Deltas as they come. Raises the `StrettoError` that ended the request."""
        try:
            while (delta := self._background.call(self._stream.next())) is not None:
                yield delta
        finally:
            self.cancel()

    def result(self) -> Completion:
        """Wait for the whole answer. Raises the `StrettoError` that ended the request."""
        return self._background.call(self._stream.result())

    def cancel(self) -> None:
        """End the request early: it finishes with reason "abort" and what it had until then."""
        self._background.post(self._stream.cancel)


class Client:
    """A server's `/v1/stream`: any number of requests at once, from any number of threads, on one WebSocket.

    >>> with Client("http://127.0.0.1:8000") as client:
    ...     for delta in client.stream(messages=[{"role": "user", "content": "Hello"}]):
    ...         print(delta.text, end="", flush=True)

    Connections, losses and slow readers are as in `AsyncClient`.
    """

    def __init__(
        self, url: str = address.DEFAULT_URL, api_key: str | None = None, *, uds: str | None = None
    ) -> None:
        self._client = AsyncClient(url, api_key, uds=uds)
        self._background = BackgroundLoop()
        self._finalizer = weakref.finalize(self, self._background.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; requests still running are cancelled."""
        self._finalizer()

    def stream(
        self,
        prompt: str | Sequence[int] | None = None,
        *,
        messages: Sequence[Message] | None = None,
        params: SamplingParams | None = None,
        **fields: Any,
    ) -> Stream:
        """Submit a request and return its stream; sending starts at once. See `AsyncClient.stream`."""

        async def submit() -> AsyncStream:
            return self._client.stream(prompt, messages=messages, params=params, **fields)

        return Stream(self._background, self._background.call(submit()))

    def generate(
        self,
        prompt: str | Sequence[int] | None = None,
        *,
        messages: Sequence[Message] | None = None,
        params: SamplingParams | None = None,
        **fields: Any,
    ) -> Completion:
        """Submit a request and wait for the whole answer. See `AsyncClient.generate`."""
        return self._background.call(
            self._client.generate(prompt, messages=messages, params=params, **fields)
        )
