"""The shapes in which `LLM` takes prompts, conversations and sampling parameters, brought into one."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from stretto.roles.client.aio import Message
from stretto.roles.messages import SamplingParams

Prompt: TypeAlias = str | list[int]
PromptLike: TypeAlias = str | Sequence[int] | Mapping[str, Any]
"""Text, token ids, or vLLM's `{"prompt": text}` and `{"prompt_token_ids": ids}`."""


def as_prompts(prompts: PromptLike | Sequence[PromptLike]) -> list[Prompt]:
    """One prompt or many, as a list; a flat sequence of integers is one prompt of token ids.

    Raises `TypeError` that names the place of what is not a prompt.
    """
    if isinstance(prompts, str | Mapping) or (len(prompts) > 0 and hasattr(prompts[0], "__index__")):
        return [_as_prompt(prompts, 0)]
    return [_as_prompt(prompt, index) for index, prompt in enumerate(prompts)]


def as_conversations(messages: Sequence[Message] | Sequence[Sequence[Message]]) -> list[list[Message]]:
    """One conversation or many, as a list of conversations.

    Raises `TypeError` that names the place of what is not a conversation.
    """
    conversations: Sequence[Any] = messages
    if messages and isinstance(messages[0], Mapping):
        conversations = [messages]
    for index, conversation in enumerate(conversations):
        if not isinstance(conversation, Sequence) or not all(
            isinstance(turn, Mapping) for turn in conversation
        ):
            raise TypeError(f'conversation {index} must be a list of {{"role": ..., "content": ...}}')
    return [list(conversation) for conversation in conversations]


def as_params(
    params: SamplingParams | Sequence[SamplingParams] | None, count: int
) -> Sequence[SamplingParams]:
    """Sampling parameters for each of `count` prompts; raises `ValueError` if the counts differ."""
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * count
    if len(params) != count:
        raise ValueError(f"{len(params)} sampling parameters for {count} prompts; give one, or one for each")
    return params


def _as_prompt(prompt: Any, index: int) -> Prompt:
    if isinstance(prompt, Mapping):
        prompt = prompt.get("prompt_token_ids", prompt.get("prompt"))
    if isinstance(prompt, str):
        return prompt
    try:
        return [operator.index(id) for id in prompt]
    except TypeError as error:
        kind = type(prompt).__name__
        raise TypeError(f"prompt {index} must be text or a list of token ids; it is {kind}") from error
