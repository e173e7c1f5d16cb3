"""What the client asked of sampling, resolved into what the device and the scheduler need."""

from __future__ import annotations

from stretto.roles.messages import Sampling, SamplingParams
from stretto.roles.tokenizer.refusal import Refused, check_text

MAX_STOP_CHARS = 1024
"""Of all stop strings of a request together: they travel in ring records beside other requests' data."""

SEED_MASK = (1 << 64) - 1


def resolve_sampling(params: SamplingParams, fresh_seed: int) -> Sampling:
    """Greedy requests lose their filters; a seed is taken modulo 2**64, None takes `fresh_seed`."""
    seed = (fresh_seed if params.seed is None else params.seed) & SEED_MASK
    if params.temperature == 0:
        return Sampling(seed=seed)
    return Sampling(params.temperature, max(params.top_k, 0), params.top_p, params.min_p, seed)


def resolve_stops(
    params: SamplingParams, eos: tuple[int, ...], size: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """`(stop_ids, silent_stop_ids)`: the model's own end ids unless ignored, then the client's.

    Raises `Refused` for ids outside [0, size).
    """
    asked = params.stop_token_ids
    for token in asked:
        if not 0 <= token < size:
            raise Refused(
                f"stop_token_ids has {token}, but token ids run from 0 to {size - 1}.", "stop_token_ids"
            )
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
