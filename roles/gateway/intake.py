"""From the bytes of a request body to a `Job`, or to a refusal that names the field.

Everything is checked here that can be checked without the vocabulary; the rest is the tokenizer's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from stretto.roles.gateway import bodies
from stretto.roles.gateway.checks import check_only, check_packs, decode
from stretto.roles.gateway.faults import refusal, unknown_model
from stretto.roles.gateway.turns import turns
from stretto.roles.messages import SamplingParams


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A valid request: what to generate, and in what form the client wants to hear of it."""

    params: SamplingParams
    prompt: str | list[int] | None = None
    """None for a chat."""
    messages: list[dict[str, Any]] | None = None
    template_kwargs: dict[str, Any] = {}
    add_generation_prompt: bool = True
    stream: bool = False
    include_usage: bool = False
    return_token_ids: bool = False


_ABSENT = msgspec.Raw(b"")


class _Peek(msgspec.Struct):
    messages: msgspec.Raw = _ABSENT


_chat = msgspec.json.Decoder(bodies.ChatBody)
_text = msgspec.json.Decoder(bodies.TextBody)
_peek = msgspec.json.Decoder(_Peek)


class Intake:
    """Reads bodies for one served model. Every method raises `Refused`."""

    def __init__(self, model: str) -> None:
        self.model = model

    def chat(self, data: bytes) -> Job:
        """Body of `POST /v1/chat/completions`; not streamed unless it says so."""
        return self._chat_job(decode(_chat, data))

    def text(self, data: bytes) -> Job:
        """Body of `POST /v1/completions`; not streamed unless it says so."""
        return self._text_job(decode(_text, data))

    def either(self, data: bytes | msgspec.Raw) -> Job:
        """Body of either kind, told apart by `messages`; streamed unless it says otherwise."""
        body: bodies.ChatBody | bodies.TextBody
        body = decode(_text if decode(_peek, data).messages is _ABSENT else _chat, data)
        body.stream = body.stream is not False
        return self._chat_job(body) if isinstance(body, bodies.ChatBody) else self._text_job(body)

    def _chat_job(self, body: bodies.ChatBody) -> Job:
        self._check(body)
        if body.response_format is not None:
            check_only(body.response_format, "response_format.")
        kwargs = body.chat_template_kwargs or {}
        check_packs(kwargs, "chat_template_kwargs")
        return Job(
            params=_params(body, _max_tokens(body)),
            messages=turns(body.messages),
            template_kwargs=kwargs,
            add_generation_prompt=body.add_generation_prompt is not False,
            **_form(body),
        )

    def _text_job(self, body: bodies.TextBody) -> Job:
        self._check(body)
        return Job(params=_params(body, body.max_tokens), prompt=_prompt(body.prompt), **_form(body))

    def _check(self, body: bodies.Body) -> None:
        if body.model is not None and body.model != self.model:
            raise unknown_model(body.model, self.model)
        check_only(body)
        if body.stream_options is not None and not body.stream:
            raise refusal("stream_options: allowed only where stream is true.", "stream_options")
        if body.seed is not None and not -(2**63) <= body.seed < 2**64:
            raise refusal("seed: Expected an integer of 64 bits.", "seed")


def _max_tokens(body: bodies.ChatBody) -> int | None:
    newer, older = body.max_completion_tokens, body.max_tokens
    if newer is not None and older is not None and newer != older:
        raise refusal("max_completion_tokens and max_tokens differ; give one of them.", "max_tokens")
    return older if newer is None else newer


def _params(body: bodies.Body, max_tokens: int | None) -> SamplingParams:
    stop = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    return SamplingParams(
        max_tokens=max_tokens,
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        top_k=body.top_k or 0,
        min_p=body.min_p or 0.0,
        seed=body.seed,
        stop=stop,
        stop_token_ids=tuple(body.stop_token_ids or ()),
        ignore_eos=bool(body.ignore_eos),
        include_stop_str_in_output=bool(body.include_stop_str_in_output),
        skip_special_tokens=body.skip_special_tokens is not False,
    )


def _form(body: bodies.Body) -> dict[str, Any]:
    options = body.stream_options or bodies.StreamOptions()
    return {
        "stream": bool(body.stream),
        "include_usage": bool(options.include_usage),
        "return_token_ids": bool(body.return_token_ids),
    }


def _prompt(prompt: str | list[int | str | list[int]]) -> str | list[int]:
    """The one prompt there is: text or ids, by itself or as the only one in a list."""
    if isinstance(prompt, str):
        return prompt
    if len(prompt) == 1 and not isinstance(prompt[0], int):
        only = prompt[0]
        return only if isinstance(only, str) else _ids(only)
    return _ids(prompt)


def _ids(ids: Sequence[int | str | list[int]]) -> list[int]:
    if not ids:
        raise refusal("prompt: Expected at least one token.", "prompt")
    whole = [i for i in ids if isinstance(i, int)]
    if len(whole) != len(ids):
        raise refusal("prompt: only one prompt per request is supported: text, or token ids.", "prompt")
    if min(whole) < 0 or max(whole) > bodies.INT32_MAX:
        raise refusal("prompt: token ids are integers from 0 to the size of the vocabulary.", "prompt")
    return whole
