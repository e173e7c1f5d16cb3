"""What `LLM` returns, in the shape that users of vLLM know."""

from __future__ import annotations

import msgspec

from stretto.roles.client.frames import Completion
from stretto.roles.messages import FinishReason


class CompletionOutput(msgspec.Struct, frozen=True):
    """One answer to a prompt; the fields are those of `Completion`."""

    index: int
    text: str
    token_ids: list[int]
    finish_reason: FinishReason
    stop_reason: str | int | None = None


class RequestOutput(msgspec.Struct, frozen=True):
    """A prompt and its answers. `prompt` is None for prompts of token ids and for conversations."""

    request_id: str
    """The prompt's place in the call, as text."""
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    num_cached_tokens: int = 0
    """Tokens of the prompt that came from the prefix cache."""
    finished: bool = True


def request_output(index: int, prompt: str | None, completion: Completion) -> RequestOutput:
    """The output for the prompt at `index`."""
    output = CompletionOutput(
        0, completion.text, completion.token_ids, completion.finish_reason, completion.stop_reason
    )
    return RequestOutput(
        str(index), prompt, completion.prompt_token_ids, [output], completion.usage.cached_tokens
    )
