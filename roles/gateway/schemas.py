"""Answers of the completion APIs and of the small endpoints, as types, for the OpenAPI document.

Nothing is encoded from them; the tests decode real answers into them, strictly, so that they stay true.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

FinishReason = Literal["stop", "length", "abort"]


class Answer(Struct, forbid_unknown_fields=True, kw_only=True):
    """An object that this server sends."""


class ErrorObject(Answer):
    """What is wrong."""

    message: str
    type: str
    param: str | None
    """The field to blame."""
    code: str | None


class Error(Answer):
    """An error, as OpenAI has it."""

    error: ErrorObject


class PromptTokensDetails(Answer):
    """About a prompt."""

    cached_tokens: int
    """Tokens that came from the prefix cache."""


class Usage(Answer):
    """Token counts of a request; a prompt counts once, however many choices there are."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class TokenLogprob(Answer):
    """A token that could have come, and its log-probability in the model's own distribution."""

    token: str
    logprob: float
    bytes: list[int]


class ChosenToken(TokenLogprob):
    """A token that came, and the likeliest at its place."""

    top_logprobs: list[TokenLogprob]


class ChatLogprobs(Answer):
    """Log-probabilities of a chat's choice."""

    content: list[ChosenToken]
    refusal: None


class TextLogprobs(Answer):
    """Log-probabilities of a completion's choice, in four parallel lists."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class PromptToken(Answer):
    """An entry of `prompt_logprobs`."""

    logprob: float
    rank: int
    decoded_token: str


PromptLogprobs = list[dict[str, PromptToken] | None]


class AssistantMessage(Answer):
    """What the model said."""

    role: Literal["assistant"]
    content: str
    refusal: None


class ChatChoice(Answer):
    """One of `n` answers."""

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason
    stop_reason: str | int | None
    """The stop string or token that matched; null for the model's own end."""
    token_ids: list[int] | UnsetType = UNSET


class ChatCompletion(Answer):
    """The answer to a chat."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


class TextChoice(Answer):
    """One of `n` continuations of one of the prompts."""

    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: FinishReason
    stop_reason: str | int | None
    """The stop string or token that matched; null for the model's own end."""
    token_ids: list[int] | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


class TextCompletion(Answer):
    """The answer to a completion."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: Usage


class Tokens(Answer):
    """A text in tokens."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class Text(Answer):
    """Tokens as text."""

    prompt: str


class Aborted(Answer):
    """How many live requests were ended."""

    aborted: int


class Model(Answer):
    """The model that is served."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: int


class ModelList(Answer):
    """All models: the one."""

    object: Literal["list"]
    data: list[Model]


class Ordered(Answer):
    """`POST /drain`, `POST /restart/{role}`: the order is given; `/health` tells what becomes of it."""

    status: Literal["draining", "restarting"]


class CachedPrefix(Answer):
    """A stretch of tokens that the cache holds after `start` others, without a branch."""

    start: int
    tokens: int
    running: int
    continuations: int
    uses_ago: int


class Cache(Answer):
    """The prefix cache on the device; `largest` are its longest stretches."""

    hit_rate: float
    host_hit_rate: float
    disk_hit_rate: float
    tokens: int
    nodes: int
    salts: int
    pages_free: int
    pages_cached: int
    pages_owned: int
    largest: list[CachedPrefix]


class CacheFlushed(Answer):
    """Tokens that were cached and no longer are."""

    flushed_tokens: int


class ProfileStarted(Answer):
    """From now on every process records what it does."""

    status: Literal["recording"]


class Version(Answer):
    """What serves."""

    version: str


class Load(Answer):
    """How much a server has to do: its requests that have not ended."""

    server_load: int


class ModelInfo(Answer):
    """What is served, in SGLang's terms; both paths are the model's name."""

    model_path: str
    tokenizer_path: str
    is_generation: bool


class Death(Answer):
    """How a process ended."""

    cause: str
    seconds_ago: float


class Role(Answer):
    """A process of the server."""

    state: str
    heartbeat_age_seconds: float | None
    restarts: int
    pid: int
    uptime_seconds: float
    last_death: Death | None
    """Of the process before this one."""


class Health(Answer):
    """Whether every process is there and alive."""

    status: Literal["ok", "unavailable", "draining"]
    roles: dict[str, Role]
    missing: list[str] | UnsetType = UNSET
    """Those that are not."""


class ServerInfo(Answer):
    """What serves, and how it is configured."""

    version: str
    model: str
    max_model_len: int
    config: dict[str, Any]
    roles: dict[str, Role]
    versions: dict[str, str]
