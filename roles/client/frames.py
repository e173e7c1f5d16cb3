"""The frames of `/v1/stream`, and the public structs made of them.

Client to server: `{"type": "generate", "id", "request", "resumable"}`, `{"type": "resume", ...}` and
`{"type": "cancel", "id"}`. Server to client, by id: `accepted`, any number of `delta`, then exactly one
`done` or `error`. An `error` whose id is null answers a frame that the server could not read. The gateway
documents the protocol; fields that this client does not know are skipped.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from stretto.roles.client.errors import StrettoError, from_object, invalid
from stretto.roles.messages import FinishReason


class PromptDetails(msgspec.Struct, frozen=True):
    """Part of OpenAI's usage object."""

    cached_tokens: int = 0


class Usage(msgspec.Struct, frozen=True):
    """OpenAI's usage object."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    prompt_tokens_details: PromptDetails | None = None

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that came from the prefix cache."""
        return self.prompt_tokens_details.cached_tokens if self.prompt_tokens_details else 0


class Alternative(msgspec.Struct, frozen=True):
    """A token that could have come: its id, its text (U+FFFD for half a character), its true bytes."""

    id: int
    token: str
    bytes: list[int]
    logprob: float


class TokenLogprob(Alternative, frozen=True):
    """A token with its log-probability, its rank (1 is the likeliest) and the likeliest alternatives."""

    rank: int
    top: list[Alternative]


class Accepted(msgspec.Struct, frozen=True, tag="accepted"):
    """The request is taken in; `stream` is what to come back with for it, None where nothing is kept."""

    id: str
    stream: str | None = None
    resume_seconds: float = 0.0


class Delta(msgspec.Struct, frozen=True, tag="delta"):
    """Text that became certain since the last delta of the same choice; unread deltas are merged."""

    id: str
    text: str
    token_ids: list[int] = []
    """The tokens behind `text`; empty unless the request had `return_token_ids`."""
    index: int = 0
    """Tokens of the choice before this delta."""
    choice: int = 0
    """Which of the request's choices the text belongs to."""
    logprobs: list[TokenLogprob] = []
    """One for each token; empty unless the request had `logprobs`."""
    prompt_logprobs: list[TokenLogprob | None] | None = None
    """On the first delta of a request with `prompt_logprobs`; None for the first token."""
    tokens: int = 0
    """How many tokens are behind `text`, where `token_ids` does not tell."""
    finish_reason: FinishReason | None = None
    """On the last delta of a choice, where there are several."""
    stop_reason: str | int | None = None
    usage: dict[str, int] | None = None
    """Counts of a choice, with its `finish_reason`."""
    prompt_token_ids: list[int] = []
    """Likewise, where the request had `return_token_ids`."""


class Choice(msgspec.Struct, frozen=True):
    """How one choice ended, and what it said if it was not streamed."""

    finish_reason: FinishReason
    stop_reason: str | int | None = None
    text: str | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    logprobs: list[TokenLogprob] | None = None
    prompt_logprobs: list[TokenLogprob | None] | None = None


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The end of a request: its only choice, or `choices`."""

    id: str
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    usage: Usage | None = None
    text: str | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    logprobs: list[TokenLogprob] | None = None
    prompt_logprobs: list[TokenLogprob | None] | None = None
    choices: list[Choice] = []

    def ends(self) -> list[Choice]:
        """All choices, in order."""
        if self.finish_reason is None:
            return self.choices
        fields = {name: getattr(self, name) for name in Choice.__struct_fields__}
        return [Choice(**fields)]


class Error(msgspec.Struct, frozen=True, tag="error"):
    """The end of a request that failed: OpenAI's error object, and the HTTP status where the server tells."""

    error: dict[str, Any]
    id: str | None = None
    status: int | None = None


class Completion(msgspec.Struct, frozen=True):
    """A whole answer, or one of its choices.

    `stop_reason` is the stop string or stop token id that matched, None for the model's own end of sequence.
    `token_ids` and `prompt_token_ids` are empty unless the request had `return_token_ids`, `logprobs` unless
    it had `logprobs`. `usage` counts the whole request.
    """

    text: str
    token_ids: list[int]
    finish_reason: FinishReason
    stop_reason: str | int | None
    usage: Usage
    prompt_token_ids: list[int]
    logprobs: list[TokenLogprob] = []
    prompt_logprobs: list[TokenLogprob | None] | None = None
    others: list[Completion] = []
    """The choices after this one, which is the first; theirs are empty."""


Frame = Accepted | Delta | Done | Error

_frames = msgspec.json.Decoder(Frame)


def decode(data: bytes) -> Frame:
    """Read a server's frame; raises `msgspec.MsgspecError` for what is not one."""
    return _frames.decode(data)


def generate(id: str, request: dict[str, Any]) -> str:
    """Frame that submits a request; raises `StrettoError` for values that JSON cannot carry."""
    return _dump({"type": "generate", "id": id, "request": request, "resumable": True})


def resume(
    id: str, request: dict[str, Any], stream: str, tokens: list[int], ends: list[dict[str, Any]]
) -> str:
    """Frame that goes on with a request: `tokens` of each choice are here, `ends` are those that ended."""
    frame = {"type": "resume", "id": id, "request": request, "stream": stream, "tokens": tokens}
    return _dump({**frame, "ends": ends})


def _dump(frame: dict[str, Any]) -> str:
    try:
        # The standard encoder, because the fast ones write NaN as null, which would mean "the default".
        return json.dumps(frame, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise invalid(f"the request cannot be written as JSON: {error}") from error


def cancel(id: str) -> str:
    """Frame that ends a request early; the server answers with a `done` whose reason is "abort"."""
    return json.dumps({"type": "cancel", "id": id})


def failure(frame: Error) -> StrettoError:
    """The exception that an error frame stands for."""
    return from_object(frame.error, frame.status, "the server gave no reason")
