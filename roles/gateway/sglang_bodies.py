"""The body of SGLang's `/generate`."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, TypeVar

from msgspec import Meta, Struct

from stretto.roles.gateway.bodies import (
    INT32_MAX,
    MAX_IDS,
    MAX_STOPS,
    Bias,
    Choices,
    Count,
    Penalty,
    Text,
    TokenId,
    Top,
)
from stretto.roles.gateway.checks import MAX_SEQUENCES
from stretto.roles.gateway.unsupported import Only

T = TypeVar("T")


class Sampling(Struct, kw_only=True, forbid_unknown_fields=True):
    """SGLang's names; None always means the default."""

    max_new_tokens: Count | None = 128
    """None: as many as fit."""
    min_new_tokens: Count | None = None
    temperature: Annotated[float, Meta(ge=0, le=100)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=INT32_MAX)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=2)] | None = None
    logit_bias: Annotated[dict[TokenId, Bias], Meta(max_length=MAX_IDS)] | None = None
    sampling_seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    n: Choices | None = None
    stop: Text | Annotated[list[Text], Meta(max_length=MAX_STOPS)] | None = None
    stop_token_ids: Annotated[list[TokenId], Meta(max_length=MAX_IDS)] | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    no_stop_trim: bool | None = None
    """Show the stop string."""
    spaces_between_special_tokens: bool | None = None
    stop_regex: Any = None
    json_schema: Any = None
    regex: Any = None
    ebnf: Any = None
    structural_tag: Any = None
    custom_params: Any = None
    stream_interval: int | None = None

    only: ClassVar[Only] = {
        "spaces_between_special_tokens": (None, True),
        "stop_regex": (None, []),
        "json_schema": (None,),
        "regex": (None,),
        "ebnf": (None,),
        "structural_tag": (None,),
        "custom_params": (None,),
        "stream_interval": (None, 1),
    }


class GenerateBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """`POST /generate`: one prompt or many. Of many, every field may be a list, one entry per prompt."""

    text: str | Annotated[list[str], Meta(min_length=1, max_length=MAX_SEQUENCES)] | None = None
    input_ids: (
        Annotated[list[TokenId | Annotated[list[TokenId], Meta(min_length=1)]], Meta(min_length=1)] | None
    ) = None
    sampling_params: Sampling | list[Sampling] | None = None
    return_logprob: bool | list[bool] | None = None
    logprob_start_len: int | list[int] | None = None
    """Where in the prompt its log-probabilities begin; -1: only those of the output."""
    top_logprobs_num: Top | list[Top] | None = None
    return_text_in_logprobs: bool | None = None
    rid: str | list[str] | None = None
    """The answer's id, also for `/abort`. One for many prompts is their prefix: `rid_0`, `rid_1` ..."""
    stream: bool | None = None
    priority: Annotated[int, Meta(ge=-(2**31), le=INT32_MAX)] | None = None
    log_metrics: bool | None = None
    no_logs: bool | None = None
    token_ids_logprob: Any = None
    input_embeds: Any = None
    image_data: Any = None
    video_data: Any = None
    audio_data: Any = None
    modalities: Any = None
    session_params: Any = None
    lora_path: Any = None
    custom_logit_processor: Any = None
    return_hidden_states: bool | None = None

    only: ClassVar[Only] = {
        "token_ids_logprob": (None, []),
        "input_embeds": (None,),
        "image_data": (None, []),
        "video_data": (None, []),
        "audio_data": (None, []),
        "modalities": (None, []),
        "session_params": (None,),
        "lora_path": (None,),
        "custom_logit_processor": (None,),
        "return_hidden_states": (None, False),
    }
