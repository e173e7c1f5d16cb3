"""What `LLM` returns, in the shape that users of vLLM know."""

from __future__ import annotations

import msgspec

from stretto.roles.client.frames import Completion, TokenLogprob
from stretto.roles.messages import FinishReason


class Logprob(msgspec.Struct, frozen=True):
    """How likely a token was; rank 1 is the likeliest."""

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


Logprobs = dict[int, Logprob]
"""Of one place in a text, by token id: first the token that stands there, then the likeliest."""


class CompletionOutput(msgspec.Struct, frozen=True):
    """One answer to a prompt; the fields are those of `Completion`."""

    index: int
    text: str
    token_ids: list[int]
    finish_reason: FinishReason
    stop_reason: str | int | None = None
    cumulative_logprob: float | None = None
    logprobs: list[Logprobs] | None = None
    """For each token, where `SamplingParams` has `logprobs`."""


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
    prompt_logprobs: list[Logprobs | None] | None = None
    """For each token of the prompt, where `SamplingParams` has `prompt_logprobs`; None for the first."""


def request_output(index: int, prompt: str | None, completion: Completion) -> RequestOutput:
    """The output for the prompt at `index`."""
    answers = [completion, *completion.others]
    return RequestOutput(
        str(index),
        prompt,
        completion.prompt_token_ids,
        [_output(i, answer) for i, answer in enumerate(answers)],
        completion.usage.cached_tokens,
        prompt_logprobs=_of_prompt(completion),
    )


def _of_prompt(completion: Completion) -> list[Logprobs | None] | None:
    if completion.prompt_logprobs is None:
        return None
    return [None if info is None else _table(info) for info in completion.prompt_logprobs]


def _output(index: int, answer: Completion) -> CompletionOutput:
    return CompletionOutput(
        index,
        answer.text,
        answer.token_ids,
        answer.finish_reason,
        answer.stop_reason,
        sum(info.logprob for info in answer.logprobs) if answer.logprobs else None,
        [_table(info) for info in answer.logprobs] if answer.logprobs else None,
    )


def _table(info: TokenLogprob) -> Logprobs:
    table = {info.id: Logprob(info.logprob, info.rank, info.token)}
    for rank, other in enumerate(info.top, 1):
        table.setdefault(other.id, Logprob(other.logprob, rank, other.token))
    return table
