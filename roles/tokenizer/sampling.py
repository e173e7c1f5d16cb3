"""What the client asked of sampling, resolved into what the device and the scheduler need."""

from __future__ import annotations

from stretto.roles.messages import Controls, Sampling, SamplingParams
from stretto.roles.tokenizer.controls import check_ids
from stretto.roles.tokenizer.refusal import Refused, check_text

MAX_LOGPROBS = 20
"""Alternatives per token, as in OpenAI's API."""

MAX_CHOICES = 64
"""Of one prompt; also beams."""

MAX_STOP_CHARS = 1024
"""Of all stop strings of a request together: they travel in ring records beside other requests' data."""

SEED_MASK = (1 << 64) - 1


def resolve_sampling(params: SamplingParams, fresh_seed: int, controls: Controls | None) -> Sampling:
    """Greedy requests lose their filters; a seed is taken modulo 2**64, None takes `fresh_seed`.

    Where only the sum of log-probabilities is wanted, to rank choices or beams, each token's is asked for.
    """
    greedy = params.temperature == 0
    ranked = params.use_beam_search or (params.best_of or 1) > params.n
    return Sampling(
        temperature=params.temperature,
        top_k=0 if greedy else max(params.top_k, 0),
        top_p=1.0 if greedy else params.top_p,
        min_p=0.0 if greedy else params.min_p,
        seed=(fresh_seed if params.seed is None else params.seed) & SEED_MASK,
        controls=controls,
        logprobs=0 if params.logprobs is None and ranked else params.logprobs,
        prompt_logprobs=params.prompt_logprobs,
    )


def check_counts(params: SamplingParams) -> None:
    """Raise `Refused` where counts contradict each other or are too large."""
    for name in ("logprobs", "prompt_logprobs"):
        _check_range(name, getattr(params, name), 0, MAX_LOGPROBS)
    if params.max_tokens is not None and params.min_tokens > params.max_tokens:
        raise Refused(
            f"min_tokens ({params.min_tokens}) is beyond max_tokens ({params.max_tokens}).", "min_tokens"
        )
    for name in ("n", "best_of"):
        _check_range(name, getattr(params, name), 1, MAX_CHOICES)
    if params.best_of is not None and params.best_of < params.n:
        raise Refused(f"best_of ({params.best_of}) is less than n ({params.n}).", "best_of")


def _check_range(name: str, value: int | None, least: int, most: int) -> None:
    if value is not None and not least <= value <= most:
        raise Refused(f"{name} may be {least} to {most}, not {value}.", name)


def resolve_stops(
    params: SamplingParams, eos: tuple[int, ...], size: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """`(stop_ids, silent_stop_ids)`: the model's own end ids unless ignored, then the client's.

    Raises `Refused` for ids outside [0, size).
    """
    asked = params.stop_token_ids
    check_ids(asked, size, "stop_token_ids")
    own = () if params.ignore_eos else eos
    return tuple(dict.fromkeys(own + asked)), own


def check_stop_strings(stop: tuple[str, ...]) -> None:
    """Raise `Refused` for stop strings that are too long together, empty, or not Unicode text."""
    if sum(map(len, stop)) > MAX_STOP_CHARS:
        raise Refused(f"The stop strings may have {MAX_STOP_CHARS} characters together.", "stop")
    if "" in stop:
        raise Refused("A stop string may not be empty.", "stop")
    for text in stop:
        check_text(text, "stop")
