"""What has arrived for one request and has not been read yet.

Nothing here waits for the reader: a request that is read slowly, or not at all, must not hold up the others
on its socket. Unread deltas of a choice merge into one, so that a request costs at most the memory of its own
answer, which its `max_tokens` and the model's context bound.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import msgspec

from stretto.roles.client import frames
from stretto.roles.client.errors import StrettoError
from stretto.roles.client.frames import Accepted, Choice, Completion, Delta, Done, TokenLogprob, Usage


class Voice:
    """One choice: what has arrived of it, and how much of that has been read."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._token_ids: list[int] = []
        self._logprobs: list[TokenLogprob] = []
        self._prompt_logprobs: list[TokenLogprob | None] | None = None
        self._prompt_token_ids: list[int] = []
        self.tokens = 0
        """How many have arrived."""
        self.end: dict[str, Any] | None = None
        """How the choice ended, where it has while others go on."""
        self._read = (0, 0, 0)
        self._unread: Delta | None = None

    def put(self, delta: Delta) -> None:
        """Append what a delta brings."""
        self._texts.append(delta.text)
        self._token_ids += delta.token_ids
        self._logprobs += delta.logprobs
        self._prompt_logprobs = self._prompt_logprobs or delta.prompt_logprobs
        self._unread = self._unread or delta
        self.tokens = delta.index + (len(delta.token_ids) or delta.tokens)
        if delta.finish_reason is not None:
            self._prompt_token_ids = delta.prompt_token_ids
            self.end = {"finish_reason": delta.finish_reason, "stop_reason": delta.stop_reason}
            self.end |= {"usage": delta.usage}

    def take(self) -> Delta:
        """All that has not been read, of which there is some, as one delta."""
        first, self._unread = self._unread, None
        assert first is not None
        texts, ids, logprobs = self._read
        self._read = len(self._texts), len(self._token_ids), len(self._logprobs)
        return msgspec.structs.replace(
            first,
            text="".join(self._texts[texts:]),
            token_ids=self._token_ids[ids:],
            logprobs=self._logprobs[logprobs:],
        )

    def whole(self, end: Choice, usage: Usage) -> Completion:
        """The choice that ends so; what its last frame does not repeat is what has arrived."""
        return Completion(
            text="".join(self._texts) if end.text is None else end.text,
            token_ids=self._token_ids if end.token_ids is None else end.token_ids,
            finish_reason=end.finish_reason,
            stop_reason=end.stop_reason,
            usage=usage,
            prompt_token_ids=end.prompt_token_ids or self._prompt_token_ids,
            logprobs=self._logprobs if end.logprobs is None else end.logprobs,
            prompt_logprobs=end.prompt_logprobs or self._prompt_logprobs,
        )


_SILENT = Voice()


class Inbox:
    """Belongs to the loop of its connection: written by the reader task, read by the request's consumer."""

    def __init__(self, id: str, request: dict[str, Any] | None = None) -> None:
        self.id, self._request = id, request or {}
        self.accepted = False
        self.handle: str | None = None
        """What to come back with after the connection was lost; None: the request ends with it."""
        self.kept_seconds = 0.0
        """How long the server keeps the stream then."""
        self.cancelled = False
        self.sends = 1
        """How often the request was sent without being accepted."""
        self.completion: Completion | None = None
        self._error: StrettoError | None = None
        self._voices: defaultdict[int, Voice] = defaultdict(Voice)
        self._unread: dict[int, None] = {}
        """Choices that have something to read, in the order in which it came."""
        self._arrived = asyncio.Event()

    @property
    def ended(self) -> bool:
        """The terminal frame is here, or never will be."""
        return self.completion is not None or self._error is not None

    @property
    def told(self) -> bool:
        """Something of the answer has arrived."""
        return bool(self._voices)

    def accept(self, accepted: Accepted) -> None:
        """The server has taken the request in."""
        self.accepted, self.sends = True, 0
        self.handle, self.kept_seconds = accepted.stream, accepted.resume_seconds

    def first_frame(self) -> str:
        """What a new connection is to be told: to go on, or, where nothing is kept yet, to begin."""
        if self.handle is None:
            self.sends += 1
            return frames.generate(self.id, self._request)
        voices = [self._voices.get(i, _SILENT) for i in range(1 + max(self._voices, default=-1))]
        ends = [{"choice": i, **voice.end} for i, voice in enumerate(voices) if voice.end is not None]
        tokens = [voice.tokens for voice in voices]
        return frames.resume(self.id, self._request, self.handle, tokens, ends)

    def forgotten(self) -> bool:
        """The server does not have the stream any more; whether it may begin anew, as nothing was told."""
        self.handle, self.accepted = None, False
        return not self.told

    def put(self, delta: Delta) -> None:
        """Append text, token ids and log-probabilities."""
        self._voices[delta.choice].put(delta)
        self._unread[delta.choice] = None
        self._arrived.set()

    def finish(self, done: Done) -> None:
        """Close with the server's last frame."""
        usage = done.usage or Usage()
        first, *others = [self._voices[i].whole(end, usage) for i, end in enumerate(done.ends())]
        self.completion = msgspec.structs.replace(first, others=others)
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
        for choice in self._unread:
            del self._unread[choice]
            return self._voices[choice].take()
        return None
