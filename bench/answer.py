"""What the load generator notes of one request; `measures` computes with it."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import msgspec


class PromptDetails(msgspec.Struct, frozen=True):
    """What the server says of a prompt's tokens."""

    cached_tokens: int | None = None


class Usage(msgspec.Struct, frozen=True):
    """Token counts as the server tells them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: PromptDetails | None = None


class Answer(msgspec.Struct):
    """A request's times, in seconds of `perf_counter`, and its tokens. A failed one has an `error`."""

    sent: float = msgspec.field(default_factory=perf_counter)
    """When the client had the request ready: waiting for a connection counts as the server's time."""
    late: float = 0.0
    """Seconds between when it was due, in an open loop, and `sent`."""
    pieces: list[float] = []
    """When each piece that brought tokens came."""
    ended: float = 0.0
    token_ids: list[int] = []
    """The whole output, of servers that have `return_token_ids`."""
    usage: Usage | None = None
    error: str = ""

    def hear(self, now: float, text: str | None, token_ids: Sequence[int] | None) -> None:
        """Take note of a piece of the stream; one that brings nothing does not count."""
        if text or token_ids:
            self.pieces.append(now)
            self.token_ids += token_ids or ()

    def fail(self, error: str) -> None:
        """End without an answer, now."""
        self.ended, self.error = perf_counter(), error

    @property
    def tokens(self) -> int:
        """Output tokens: as counted by the server, or by their ids, or at least by pieces."""
        if self.usage is not None:
            return self.usage.completion_tokens
        return len(self.token_ids) or len(self.pieces)

    @property
    def prompt_tokens(self) -> int:
        """As counted by the server; 0 if it does not tell."""
        return 0 if self.usage is None else self.usage.prompt_tokens

    @property
    def hit(self) -> bool:
        """Whether most of the prompt came from the server's cache, as far as it tells."""
        details = None if self.usage is None else self.usage.prompt_tokens_details
        return details is not None and 2 * (details.cached_tokens or 0) > self.prompt_tokens
