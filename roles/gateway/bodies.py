"""The request bodies, as types: what decodes into them is well-formed, what does not is refused.

Ranges live here too. What a type cannot say (a field with one supported value, fields that contradict each
other) is checked in `checks`. What each field does is told in `FIELDS.md`.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct

from stretto.roles.gateway.unsupported import Off, Only, Unsupported

INT32_MAX = 2**31 - 1
MAX_STOPS = 16
MAX_IDS = 1024
"""Of each list or table of token ids: they travel beside the other requests of a step."""

Count = Annotated[int, Meta(ge=0, le=INT32_MAX)]
Choices = Annotated[int, Meta(ge=1, le=64)]
TokenId = Annotated[int, Meta(ge=0, le=INT32_MAX)]
Text = Annotated[str, Meta(min_length=1)]
Top = Annotated[int, Meta(ge=0, le=20)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Bias = Annotated[float, Meta(ge=-100, le=100)]


class StreamOptions(Struct, forbid_unknown_fields=True):
    """How a stream reports."""

    include_usage: bool | None = None
    """Send a last chunk with the token counts and no choices."""
    continuous_usage_stats: bool | None = None
    """Send the counts so far with every chunk."""
    include_obfuscation: bool | None = None
    """Of no use here: nothing is padded."""


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
    audio: None = None
    function_call: None = None
    tool_calls: list[Any] | None = None
    reasoning: None = None
    reasoning_content: None = None

    only: ClassVar[Only] = {"refusal": (None, ""), "annotations": (None, []), "tool_calls": (None, [])}


class Body(Unsupported, kw_only=True):
    """What both completion APIs take. None always means the default."""

    model: str | None = None
    max_tokens: Count | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=INT32_MAX)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    seed: int | None = None
    n: Choices | None = None
    best_of: Choices | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=100)] | None = None
    logit_bias: Annotated[dict[TokenId, Bias], Meta(max_length=MAX_IDS)] | None = None
    allowed_token_ids: Annotated[list[TokenId], Meta(min_length=1, max_length=MAX_IDS)] | None = None
    bad_words: Annotated[list[Text], Meta(max_length=128)] | None = None
    min_tokens: Count | None = None
    stop: Text | Annotated[list[Text], Meta(max_length=MAX_STOPS)] | None = None
    stop_token_ids: Annotated[list[TokenId], Meta(max_length=MAX_IDS)] | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    prompt_logprobs: Top | None = None
    use_beam_search: bool | None = None
    length_penalty: Annotated[float, Meta(ge=-10, le=10)] | None = None
    early_stopping: bool | Literal["never"] | None = None
    echo: bool | None = None
    add_special_tokens: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    priority: Annotated[int, Meta(ge=-INT32_MAX, le=INT32_MAX)] | None = None
    cache_salt: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    timeout: Annotated[float, Meta(gt=0, le=1e6)] | None = None
    """Seconds."""
    request_id: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    rid: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    """SGLang's name of `request_id`."""

    user: str | None = None
    session_id: str | None = None
    custom_labels: dict[str, str] | None = None
    stream_interval: int | None = None
    return_mm_kwargs: bool | None = None
    return_token_offsets: bool | None = None


class ChatBody(Body, kw_only=True):
    """`POST /v1/chat/completions`."""

    messages: Annotated[list[Message], Meta(min_length=1)]
    max_completion_tokens: Count | None = None
    """The newer name of `max_tokens`."""
    logprobs: bool | None = None
    top_logprobs: Top | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    documents: list[dict[str, Any]] | None = None
    reasoning_effort: str | None = None

    metadata: dict[str, str] | None = None
    service_tier: Literal["auto", "default"] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    prompt_cache_options: dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    include_reasoning: bool | None = None
    separate_reasoning: bool | None = None
    stream_reasoning: bool | None = None

    store: Off = None
    tools: list[Any] | None = None
    tool_choice: Literal["none", "auto"] | None = None
    functions: list[Any] | None = None
    function_call: Literal["none", "auto"] | None = None
    modalities: list[str] | None = None
    verbosity: Literal["medium"] | None = None
    audio: None = None
    prediction: None = None
    web_search_options: None = None
    moderation: None = None
    chat_template: None = None
    mm_processor_kwargs: dict[str, Any] | None = None
    media_io_kwargs: dict[str, Any] | None = None
    return_prompt_text: Off = None
    return_prompt_token_ids: Off = None
    return_meta_info: Off = None
    task: None = None
    max_dynamic_patch: None = None
    min_dynamic_patch: None = None
    use_audio_in_video: Off = None
    input_ids: None = None

    only: ClassVar[Only] = {
        **Body.only,
        "store": (None, False),
        "tools": (None, []),
        "functions": (None, []),
        "modalities": (None, ["text"]),
        "mm_processor_kwargs": (None, {}),
        "media_io_kwargs": (None, {}),
        "return_prompt_text": (None, False),
        "return_prompt_token_ids": (None, False),
        "return_meta_info": (None, False),
        "use_audio_in_video": (None, False),
    }


class TextBody(Body, kw_only=True):
    """`POST /v1/completions`."""

    prompt: str | list[int | str | list[int]]
    logprobs: Top | None = None
    suffix: Literal[""] | None = None
    prompt_embeds: None = None
