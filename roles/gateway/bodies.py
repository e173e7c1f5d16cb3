"""The request bodies, as types: what decodes into them is well-formed, what does not is refused.

Ranges live here too. What a type cannot say (a field that exists in the API but has only one supported
value, fields that contradict each other) is checked in `intake`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct

INT32_MAX = 2**31 - 1
MAX_STOPS = 16

Count = Annotated[int, Meta(ge=1, le=INT32_MAX)]
TokenId = Annotated[int, Meta(ge=0, le=INT32_MAX)]
StopString = Annotated[str, Meta(min_length=1)]

Only = Mapping[str, tuple[Any, ...]]
"""Values a field may have although others exist in the API."""


class StreamOptions(Struct, forbid_unknown_fields=True):
    """How a stream reports."""

    include_usage: bool | None = None
    """Send a last chunk with the token counts and no choices."""


class ResponseFormat(Struct, forbid_unknown_fields=True):
    """Only plain text is supported."""

    type: str
    json_schema: Any = None

    only: ClassVar[Only] = {"type": ("text",), "json_schema": (None,)}


class TextPart(Struct, tag_field="type", tag="text", forbid_unknown_fields=True):
    """One part of a message's content."""

    text: str


class Message(Struct, forbid_unknown_fields=True):
    """One turn of a conversation. An answer of ours, or of OpenAI's, may be sent back as it is."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart]
    name: str | None = None
    tool_call_id: str | None = None
    refusal: str | None = None
    annotations: list[Any] | None = None
    audio: Any = None
    function_call: Any = None
    tool_calls: list[Any] | None = None

    only: ClassVar[Only] = {
        "refusal": (None, ""),
        "annotations": (None, []),
        "audio": (None,),
        "function_call": (None,),
        "tool_calls": (None, []),
    }


class Body(Struct, kw_only=True, forbid_unknown_fields=True):
    """What both completion APIs take. None always means the default."""

    model: str | None = None
    max_tokens: Count | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=INT32_MAX)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    seed: int | None = None
    stop: StopString | Annotated[list[StopString], Meta(max_length=MAX_STOPS)] | None = None
    stop_token_ids: Annotated[list[TokenId], Meta(max_length=1024)] | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None
    n: int | None = None
    best_of: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    user: str | None = None

    only: ClassVar[Only] = {
        "n": (None, 1),
        "best_of": (None, 1),
        "presence_penalty": (None, 0),
        "frequency_penalty": (None, 0),
        "logit_bias": (None, {}),
    }


class ChatBody(Body):
    """`POST /v1/chat/completions`."""

    messages: Annotated[list[Message], Meta(min_length=1)]
    max_completion_tokens: Count | None = None
    """The newer name of `max_tokens`."""
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    response_format: ResponseFormat | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None

    only: ClassVar[Only] = {
        **Body.only,
        "logprobs": (None, False),
        "top_logprobs": (None, 0),
        "store": (None, False),
    }


class TextBody(Body):
    """`POST /v1/completions`."""

    prompt: str | list[int | str | list[int]]
    echo: bool | None = None
    logprobs: int | None = None
    suffix: str | None = None

    only: ClassVar[Only] = {**Body.only, "echo": (None, False), "logprobs": (None,), "suffix": (None, "")}
