"""From a body of SGLang's `/generate` to jobs: one per prompt."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import msgspec

from stretto.roles.gateway.checks import check_batch, check_only, check_tokens
from stretto.roles.gateway.faults import refusal
from stretto.roles.gateway.intake import temperature_of
from stretto.roles.gateway.job import Job
from stretto.roles.gateway.sglang_bodies import GenerateBody, Sampling
from stretto.roles.messages import SamplingParams

T = TypeVar("T")


class Wanted(NamedTuple):
    """One prompt of a body: what to generate, and what to report of it."""

    job: Job
    start: int | None
    """First prompt token whose log-probability is reported."""
    top: int | None
    """Alternatives per token; None: no log-probabilities."""
    with_text: bool


def wanted(body: GenerateBody) -> list[Wanted]:
    """The prompts in order. Raises `Refused`."""
    check_only(body)
    prompts = _prompts(body)
    count = len(prompts) if is_batch(body) else None
    samplings = _spread(body.sampling_params, count, "sampling_params", Sampling())
    for i, sampling in enumerate(samplings):
        check_only(
            sampling,
            f"sampling_params[{i}]." if isinstance(body.sampling_params, list) else "sampling_params.",
        )
    check_batch(len(prompts), max(sampling.n or 1 for sampling in samplings))
    flags = _spread(body.return_logprob, count, "return_logprob", False)
    starts = _spread(body.logprob_start_len, count, "logprob_start_len", -1)
    tops = _spread(body.top_logprobs_num, count, "top_logprobs_num", 0)
    return [
        _wanted(body, prompt, sampling, rid, start if flag else -1, top if flag else None)
        for prompt, sampling, rid, flag, start, top in zip(
            prompts, samplings, _rids(body, count), flags, starts, tops, strict=True
        )
    ]


def is_batch(body: GenerateBody) -> bool:
    """Whether the answer is a list, because the prompts came as one."""
    return isinstance(body.text, list) or (body.input_ids is not None and isinstance(body.input_ids[0], list))


def _prompts(body: GenerateBody) -> list[str | list[int]]:
    if (body.text is None) == (body.input_ids is None):
        raise refusal("Give either text or input_ids.", "text")
    if body.text is not None:
        return list(body.text) if isinstance(body.text, list) else [body.text]
    ids = body.input_ids or []
    many: list[str | list[int]] = [entry for entry in ids if isinstance(entry, list)]
    if not many:
        return [[entry for entry in ids if isinstance(entry, int)]]
    if len(many) != len(ids):
        raise refusal("input_ids: Expected one list of ids, or a list of such lists.", "input_ids")
    return many


def _spread(value: T | list[T] | None, count: int | None, name: str, default: T) -> list[T]:
    """One value per prompt; `count` None: there is one prompt, and not in a list."""
    if not isinstance(value, list):
        return [default if value is None else value] * (count or 1)
    if len(value) != count:
        expected = "one value" if count is None else f"one value, or {count}: one per prompt"
        raise refusal(f"{name}: Expected {expected}.", name)
    return value


def _rids(body: GenerateBody, count: int | None) -> list[str | None]:
    if count is not None and isinstance(body.rid, str):
        return [f"{body.rid}_{i}" for i in range(count)]
    if body.rid is None:
        return [None] * (count or 1)
    return [*_spread(body.rid, count, "rid", "")]


def _wanted(
    body: GenerateBody,
    prompt: str | list[int],
    sampling: Sampling,
    rid: str | None,
    start: int,
    top: int | None,
) -> Wanted:
    scored = start >= 0
    job = Job(
        params=_params(sampling, top, top if scored else None),
        prompts=(prompt,),
        stream=bool(body.stream),
        priority=body.priority or 0,
        request_id=rid,
        return_token_ids=scored,
    )
    return Wanted(job, start if scored else None, top, bool(body.return_text_in_logprobs))


def _params(sampling: Sampling, logprobs: int | None, prompt_logprobs: int | None) -> SamplingParams:
    check_tokens(sampling.min_new_tokens, sampling.max_new_tokens)
    given = {
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "frequency_penalty": sampling.frequency_penalty,
        "presence_penalty": sampling.presence_penalty,
        "repetition_penalty": sampling.repetition_penalty,
        "logit_bias": sampling.logit_bias,
        "min_tokens": sampling.min_new_tokens,
        "ignore_eos": sampling.ignore_eos,
        "skip_special_tokens": sampling.skip_special_tokens,
        "include_stop_str_in_output": sampling.no_stop_trim,
        "n": sampling.n,
    }
    stop = (sampling.stop,) if isinstance(sampling.stop, str) else tuple(sampling.stop or ())
    params = SamplingParams(
        max_tokens=sampling.max_new_tokens,
        temperature=temperature_of(sampling.temperature),
        seed=sampling.sampling_seed,
        stop=stop,
        stop_token_ids=tuple(sampling.stop_token_ids or ()),
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
    )
    given = {name: value for name, value in given.items() if value is not None}
    return msgspec.structs.replace(params, **given)
