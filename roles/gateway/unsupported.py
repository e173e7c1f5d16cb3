"""Fields that OpenAI's, vLLM's or SGLang's completions have and this server does not.

They stand here so that a client which sends one with its neutral value is served, and one which means it is
refused by name. `FIELDS.md` says why each is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import Struct

Only = Mapping[str, tuple[Any, ...]]
"""The values that a field may have, where its type admits others."""

Off = bool | None
"""A switch that must stay off; see `only`."""


class Unsupported(Struct, kw_only=True, forbid_unknown_fields=True):
    """Of both completion APIs. A field whose type is None takes null and nothing else."""

    response_format: Any = None
    structured_outputs: None = None
    structural_tag: None = None
    guided_json: None = None
    guided_regex: None = None
    guided_choice: None = None
    guided_grammar: None = None
    guided_decoding_backend: None = None
    guided_whitespace_pattern: None = None
    json_schema: None = None
    regex: None = None
    ebnf: None = None
    stop_regex: None = None
    no_stop_trim: Off = None
    truncate_prompt_tokens: None = None
    truncation_side: None = None
    spaces_between_special_tokens: Off = None
    logprob_token_ids: None = None
    watermarking: Off = None
    repetition_detection: None = None
    thinking_token_budget: int | None = None
    logits_processors: None = None
    extra_key: None = None
    kv_transfer_params: None = None
    ec_transfer_params: None = None
    vllm_xargs: dict[str, Any] | None = None
    lora_path: None = None
    session_params: None = None
    return_hidden_states: Off = None
    return_routed_experts: Off = None
    routed_experts_start_len: int | None = None
    routed_experts_prompt_start: int | None = None
    return_cached_tokens_details: Off = None
    custom_logit_processor: None = None
    custom_params: None = None
    images_config: None = None
    ngram_corpus_id: None = None
    bootstrap_host: None = None
    bootstrap_port: None = None
    bootstrap_room: None = None
    routed_dp_rank: None = None
    disagg_prefill_dp_rank: None = None
    data_parallel_rank: None = None

    only: ClassVar[Only] = {
        "response_format": (None, {"type": "text"}),
        "no_stop_trim": (None, False),
        "spaces_between_special_tokens": (None, True),
        "watermarking": (None, False),
        "thinking_token_budget": (None, -1),
        "vllm_xargs": (None, {}),
        "return_hidden_states": (None, False),
        "return_routed_experts": (None, False),
        "routed_experts_start_len": (None, 0),
        "routed_experts_prompt_start": (None, 0),
        "return_cached_tokens_details": (None, False),
    }
