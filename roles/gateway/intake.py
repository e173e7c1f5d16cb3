"""From the bytes of a request body to a `Job`, or to a refusal that names the field.

Everything is checked here that can be checked without the vocabulary; the rest is the tokenizer's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from stretto.roles.gateway import bodies, checks
from stretto.roles.gateway.faults import refusal
from stretto.roles.gateway.job import Job
from stretto.roles.gateway.reader import Reader
from stretto.roles.gateway.turns import turns
from stretto.roles.messages import SamplingParams

COMPLETION_TOKENS = 16
"""`max_tokens` of a body of `/v1/completions` that names none."""
GREEDY_BELOW = 1e-5
"""A temperature under it is 0, as in vLLM: logits divided by less leave the range of float32."""

_ABSENT = msgspec.Raw(b"")


class _Peek(msgspec.Struct):
    messages: msgspec.Raw = _ABSENT
    prompt: msgspec.Raw = _ABSENT


_peek = Reader(_Peek)


class Intake:
    """Reads bodies for one served model. Every method raises `Refused`."""

    def __init__(self, model: str, lenient: bool = False) -> None:
        """With `lenient`, unknown fields are ignored."""
        self.model = model
        self._chat, self._text = Reader(bodies.ChatBody, lenient), Reader(bodies.TextBody, lenient)

    def chat(self, data: bytes) -> Job:
        """Body of `POST /v1/chat/completions`; not streamed unless it says so."""
        return self._chat_job(self._chat.read(data))

    def text(self, data: bytes) -> Job:
        """Body of `POST /v1/completions`; unless it says so, few tokens and not streamed, as in OpenAI's."""
        body = self._text.read(data)
        if body.max_tokens is None:
            body.max_tokens = max(COMPLETION_TOKENS, body.min_tokens or 0)
        return self._text_job(body)

    def either(self, data: bytes | msgspec.Raw) -> Job:
        """Body of either kind, told apart by `messages`; streamed unless it says otherwise."""
        named = _peek.read(data)
        if (named.messages is _ABSENT) == (named.prompt is _ABSENT):
            raise refusal("Give either messages, as to a chat, or a prompt.", "prompt")
        body: bodies.ChatBody | bodies.TextBody
        body = (self._text if named.messages is _ABSENT else self._chat).read(data)
        body.stream = body.stream is not False
        return self._chat_job(body) if isinstance(body, bodies.ChatBody) else self._text_job(body)

    def _chat_job(self, body: bodies.ChatBody) -> Job:
        body.max_tokens = _max_tokens(body)
        checks.check_body(body, self.model)
        checks.check_turns(body)
        said = turns(body.messages)
        return Job(
            params=_params(body, (body.top_logprobs or 0) if body.logprobs else None),
            messages=said,
            template_kwargs=_template_kwargs(body),
            add_generation_prompt=body.add_generation_prompt is not False and not body.continue_final_message,
            continue_final_message=bool(body.continue_final_message),
            lead=said[-1]["content"] if body.echo and said[-1]["role"] == "assistant" else "",
            **_form(body),
        )

    def _text_job(self, body: bodies.TextBody) -> Job:
        checks.check_body(body, self.model)
        prompts = _prompts(body.prompt)
        params = _params(body, body.logprobs)
        if body.echo and body.logprobs is not None:
            shown = max(body.logprobs, body.prompt_logprobs or 0)
            params = msgspec.structs.replace(params, prompt_logprobs=shown)
        job = Job(params=params, prompts=prompts, echo=bool(body.echo), **_form(body))
        checks.check_batch(len(prompts), job.width)
        return job


def _max_tokens(body: bodies.ChatBody) -> int | None:
    newer, older = body.max_completion_tokens, body.max_tokens
    if newer is not None and older is not None and newer != older:
        raise refusal("max_completion_tokens and max_tokens differ; give one of them.", "max_tokens")
    return older if newer is None else newer


def _template_kwargs(body: bodies.ChatBody) -> dict[str, Any]:
    kwargs = dict(body.chat_template_kwargs or {})
    if body.documents is not None:
        kwargs["documents"] = body.documents
    if body.reasoning_effort is not None:
        kwargs["reasoning_effort"] = body.reasoning_effort
    checks.check_packs(kwargs, "chat_template_kwargs")
    return kwargs


def temperature_of(value: float | None) -> float:
    """The temperature that a body asks for; the default is 1."""
    if value is None:
        return 1.0
    return 0.0 if value < GREEDY_BELOW else value


def _params(body: bodies.Body, logprobs: int | None) -> SamplingParams:
    checks.check_tokens(body.min_tokens, body.max_tokens)
    return SamplingParams(
        max_tokens=body.max_tokens,
        temperature=temperature_of(body.temperature),
        top_p=_or(body.top_p, 1.0),
        top_k=body.top_k or 0,
        min_p=body.min_p or 0.0,
        seed=body.seed,
        stop=(body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ()),
        stop_token_ids=tuple(body.stop_token_ids or ()),
        ignore_eos=bool(body.ignore_eos),
        include_stop_str_in_output=bool(body.include_stop_str_in_output),
        skip_special_tokens=body.skip_special_tokens is not False,
        n=body.n or 1,
        best_of=body.best_of,
        presence_penalty=body.presence_penalty or 0.0,
        frequency_penalty=body.frequency_penalty or 0.0,
        repetition_penalty=_or(body.repetition_penalty, 1.0),
        logit_bias=body.logit_bias or {},
        allowed_token_ids=None if body.allowed_token_ids is None else tuple(body.allowed_token_ids),
        bad_words=tuple(body.bad_words or ()),
        min_tokens=body.min_tokens or 0,
        logprobs=logprobs,
        prompt_logprobs=body.prompt_logprobs,
        use_beam_search=bool(body.use_beam_search),
        length_penalty=_or(body.length_penalty, 1.0),
        early_stopping=body.early_stopping or False,
    )


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _form(body: bodies.Body) -> dict[str, Any]:
    options = body.stream_options or bodies.StreamOptions()
    return {
        "prompt_logprobs": body.prompt_logprobs,
        "add_special_tokens": body.add_special_tokens,
        "stream": bool(body.stream),
        "include_usage": bool(options.include_usage),
        "continuous_usage": bool(options.continuous_usage_stats),
        "return_token_ids": bool(body.return_token_ids),
        "tokens_as_ids": bool(body.return_tokens_as_token_ids),
        "priority": body.priority or 0,
        "cache_salt": body.cache_salt or "",
        "timeout": body.timeout,
        "request_id": body.request_id or body.rid,
    }


def _prompts(prompt: str | list[int | str | list[int]]) -> tuple[str | list[int], ...]:
    """Text, or token ids, or a list of those; a list of integers is one prompt."""
    if isinstance(prompt, str):
        return (prompt,)
    if not prompt:
        raise refusal("prompt: Expected at least one token, or one prompt.", "prompt")
    several = [one for one in prompt if not isinstance(one, int)]
    if len(several) < len(prompt):
        return (_ids(prompt),)
    return tuple(one if isinstance(one, str) else _ids(one) for one in several)


def _ids(ids: Sequence[int | str | list[int]]) -> list[int]:
    if not ids:
        raise refusal("prompt: Expected at least one token.", "prompt")
    whole = [i for i in ids if isinstance(i, int)]
    if len(whole) != len(ids):
        raise refusal("prompt: token ids and texts do not mix.", "prompt")
    if min(whole) < 0 or max(whole) > bodies.INT32_MAX:
        raise refusal("prompt: token ids are integers from 0 to the size of the vocabulary.", "prompt")
    return whole
