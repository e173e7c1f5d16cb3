"""What has arrived for one request and has not been read yet.

Nothing here waits for the reader: a request that is read slowly, or not at all, must not hold up the others
on its socket. Unread deltas merge into one, so that a request costs at most the memory of its own answer,
which its `max_tokens` and the model's context bound.
"""

from __future__ import annotations

import asyncio

from stretto.roles.client.errors import StrettoError
from stretto.roles.client.frames import Completion, Delta, Done, Usage


class Inbox:
    """Belongs to the loop of its connection: written by the reader task, read by the request's consumer."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.completion: Completion | None = None
        self._error: StrettoError | None = None
        self._texts: list[str] = []
        self._token_ids: list[int] = []
        self._texts_read = 0
        self._token_ids_read = 0
        self._arrived = asyncio.Event()

    @property
    def ended(self) -> bool:
        """The terminal frame is here, or never will be."""
        return self.completion is not None or self._error is not None

    def put(self, delta: Delta) -> None:
        """Append text and token ids."""
        self._texts.append(delta.text)
        self._token_ids += delta.token_ids
        self._arrived.set()

    def finish(self, done: Done) -> None:
        """Close with the server's last frame."""
        self.completion = Completion(
            text="".join(self._texts) if done.text is None else done.text,
            token_ids=self._token_ids if done.token_ids is None else done.token_ids,
            finish_reason=done.finish_reason,
            stop_reason=done.stop_reason,
            usage=done.usage or Usage(),
            prompt_token_ids=done.prompt_token_ids or [],
        )
        self._arrived.set()

    def fail(self, error: StrettoError) -> None:
        """Close without an answer; what arrived before can still be read."""
        if not self.ended:
            self._error = error
            self._arrived.set()

    async def next(self) -> Delta | None:
        """Wait for text; None after the last. Raises the `StrettoError` that ended the request."""
        while (delta := self._take()) is None and not self.ended:
            self._arrived.clear()
            await self._arrived.wait()
        if delta is None and self._error is not None:
            raise self._error
        return delta

    async def result(self) -> Completion:
        """Wait for the end. Raises the `StrettoError` that ended the request."""
        while not self.ended:
            self._arrived.clear()
            await self._arrived.wait()
        if self._error is not None:
            raise self._error
        assert self.completion is not None
        return self.completion

    def _take(self) -> Delta | None:
        if self._texts_read == len(self._texts):
            return None
        text = "".join(self._texts[self._texts_read :])
        token_ids = self._token_ids[self._token_ids_read :]
        self._texts_read, self._token_ids_read = len(self._texts), len(self._token_ids)
        return Delta(self.id, text, token_ids)
