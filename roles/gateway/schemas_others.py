"""Answers of the Responses API, of Anthropic's and of SGLang's, as types; see `schemas`."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, UnsetType

from stretto.roles.gateway.schemas import Answer, ChosenToken

# OpenAI's Responses API.


class InputPart(Answer, tag_field="type", tag="input_text"):
    """Text that was given."""

    text: str


class OutputPart(Answer, tag_field="type", tag="output_text"):
    """Text of the model."""

    text: str
    annotations: list[Any]
    logprobs: list[ChosenToken] | UnsetType = UNSET


class OutputMessage(Answer):
    """What the model said."""

    id: str
    type: Literal["message"]
    status: Literal["in_progress", "completed", "incomplete"]
    role: Literal["assistant"]
    content: list[OutputPart]


class InputMessage(Answer):
    """A message that a response was made from."""

    id: str
    type: Literal["message"]
    status: str
    role: Literal["user", "assistant", "system", "developer"]
    content: list[InputPart | OutputPart]


class InputItems(Answer):
    """A page of them."""

    object: Literal["list"]
    data: list[InputMessage]
    first_id: str | None
    last_id: str | None
    has_more: bool


class ResponseError(Answer):
    """Why a response failed."""

    code: Literal["server_error", "rate_limit_exceeded", "invalid_prompt"]
    message: str


class IncompleteDetails(Answer):
    """Why a response is incomplete."""

    reason: Literal["max_output_tokens"]


class CachedTokens(Answer):
    """About the input."""

    cached_tokens: int
    cache_write_tokens: int


class ReasoningTokens(Answer):
    """About the output."""

    reasoning_tokens: int


class ResponseUsage(Answer):
    """Token counts."""

    input_tokens: int
    input_tokens_details: CachedTokens
    output_tokens: int
    output_tokens_details: ReasoningTokens
    total_tokens: int


class Response(Answer):
    """A response, ended or on its way."""

    id: str
    object: Literal["response"]
    created_at: float
    completed_at: float | None
    status: Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
    background: bool
    error: ResponseError | None
    incomplete_details: IncompleteDetails | None
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: None
    metadata: dict[str, str]
    model: str
    output: list[OutputMessage]
    parallel_tool_calls: bool
    previous_response_id: str | None
    prompt_cache_key: str | None
    reasoning: dict[str, None]
    safety_identifier: str | None
    service_tier: Literal["default"]
    store: bool
    temperature: float
    text: dict[str, Any]
    tool_choice: Literal["none", "auto"]
    tools: list[Any]
    top_logprobs: int
    top_p: float
    truncation: Literal["disabled"]
    usage: ResponseUsage | None
    user: str | None


class Deleted(Answer):
    """A response that is forgotten."""

    id: str
    object: Literal["response"]
    deleted: Literal[True]


# Anthropic's Messages API.


class AnthropicErrorObject(Answer):
    """What is wrong."""

    type: str
    message: str


class AnthropicError(Answer):
    """An error, as Anthropic has it."""

    type: Literal["error"]
    error: AnthropicErrorObject
    request_id: None


class TextContent(Answer, tag_field="type", tag="text"):
    """Text of the model."""

    text: str


class MessageUsage(Answer):
    """Token counts; the prompt is the sum of its three."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int


class AnthropicMessage(Answer):
    """What the model said."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[TextContent]
    stop_reason: Literal["end_turn", "max_tokens", "stop_sequence", "pause_turn"]
    stop_sequence: str | None
    usage: MessageUsage


class TokenCount(Answer):
    """Tokens of a prompt."""

    input_tokens: int


# SGLang's own.

Logprob = tuple[float | None, int | None, str | None]
"""Log-probability, token id, text."""


class Matched(Answer, tag_field="type", tag="stop"):
    """It ended by a stop string or token."""

    matched: str | int | None


class Length(Answer, tag_field="type", tag="length"):
    """It ended because it was long enough."""

    length: int


class Abort(Answer, tag_field="type", tag="abort"):
    """It was ended from outside."""

    message: str


class MetaInfo(Answer):
    """About a choice."""

    id: str
    finish_reason: Matched | Length | Abort | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    e2e_latency: float | UnsetType = UNSET
    """Seconds."""
    input_token_logprobs: list[Logprob] | UnsetType = UNSET
    output_token_logprobs: list[Logprob] | UnsetType = UNSET
    input_top_logprobs: list[list[Logprob] | None] | UnsetType = UNSET
    output_top_logprobs: list[list[Logprob]] | UnsetType = UNSET


class Generated(Answer):
    """One choice; in a stream, as far as it has come."""

    text: str
    output_ids: list[int]
    meta_info: MetaInfo
    index: int | UnsetType = UNSET
    """Its place among all, in a stream of several."""
