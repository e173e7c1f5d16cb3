"""What the types of `bodies` cannot say: values with conditions, and fields that contradict each other.

Every function raises `Refused`, and names the field.
"""

from __future__ import annotations

from typing import Any

import msgspec

from stretto.roles.gateway import bodies
from stretto.roles.gateway.faults import refusal, unknown_model

MAX_SEQUENCES = 4096
"""Of one request: prompts times choices."""

_NEUTRAL_FOR_BEAMS: dict[str, tuple[Any, ...]] = {
    "temperature": (None, 0, 1),
    "top_p": (None, 1),
    "top_k": (None, 0, -1),
    "min_p": (None, 0),
    "presence_penalty": (None, 0),
    "frequency_penalty": (None, 0),
    "repetition_penalty": (None, 1),
    "logit_bias": (None, {}),
    "allowed_token_ids": (None,),
    "bad_words": (None, []),
    "min_tokens": (None, 0),
}
"""Beams are ranked by the model's own distribution: nothing that bends it goes with them."""


def check_body(body: bodies.Body, model: str) -> None:
    """All that holds for both completion APIs."""
    if body.model is not None and body.model != model:
        raise unknown_model(body.model, model)
    check_only(body)
    if body.stream_options is not None and not body.stream:
        raise refusal("stream_options: allowed only where stream is true.", "stream_options")
    if body.seed is not None and not -(2**63) <= body.seed < 2**64:
        raise refusal("seed: Expected an integer of 64 bits.", "seed")
    if None not in (body.request_id, body.rid) and body.request_id != body.rid:
        raise refusal("request_id and rid differ; give one of them.", "rid")
    _check_choices(body)
    _check_beams(body)


def check_only(part: Any, path: str = "") -> None:
    """Refuse values that the API knows and this server does not; `part.only` lists what is left of them."""
    for field, allowed in part.only.items():
        if getattr(part, field) not in allowed:
            supported = " or ".join(msgspec.json.encode(value).decode() for value in allowed)
            raise refusal(f"{path}{field}: only {supported} is supported.", path + field)


def check_packs(value: Any, param: str) -> None:
    """JSON has integers of any size; messages between processes have 64 bits."""
    try:
        msgspec.msgpack.encode(value)
    except OverflowError:
        raise refusal(f"{param}: integers must fit in 64 bits.", param) from None


def check_tokens(min_tokens: int | None, max_tokens: int | None) -> None:
    """As much is allowed as is demanded."""
    if max_tokens is not None and (min_tokens or 0) > max_tokens:
        raise refusal(f"min_tokens: {min_tokens} is more than max_tokens, {max_tokens}.", "min_tokens")


def check_turns(body: bodies.ChatBody) -> None:
    """The end of the conversation is opened in one way only."""
    if body.continue_final_message and body.add_generation_prompt:
        raise refusal(
            "continue_final_message: excludes add_generation_prompt; send one of them.",
            "continue_final_message",
        )
    if body.top_logprobs and not body.logprobs:
        raise refusal("top_logprobs: needs logprobs to be true.", "top_logprobs")


def check_batch(prompts: int, width: int) -> None:
    """A request stays within what one client may ask for at once."""
    if prompts * width > MAX_SEQUENCES:
        message = f"prompt: {prompts} prompts of {width} choices; {MAX_SEQUENCES} are allowed in one request."
        raise refusal(message, "prompt")


def _check_choices(body: bodies.Body) -> None:
    best_of, n = body.best_of, body.n or 1
    if best_of is None:
        return
    if best_of < n:
        raise refusal(f"best_of: {best_of} is less than n, {n}.", "best_of")
    if best_of > n and body.stream and not body.use_beam_search:
        raise refusal("best_of: which are best is known at the end; send stream as false.", "best_of")


def _check_beams(body: bodies.Body) -> None:
    if body.use_beam_search:
        for field, neutral in _NEUTRAL_FOR_BEAMS.items():
            if getattr(body, field) not in neutral:
                raise refusal(f"{field}: does not go with use_beam_search.", field)
        if body.max_tokens == 0:
            raise refusal("max_tokens: beam search needs at least one.", "max_tokens")
    elif body.length_penalty not in (None, 1):
        raise refusal("length_penalty: needs use_beam_search.", "length_penalty")
    elif body.early_stopping not in (None, False):
        raise refusal("early_stopping: needs use_beam_search.", "early_stopping")
