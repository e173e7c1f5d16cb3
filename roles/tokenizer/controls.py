"""What the client wants forbidden, favoured or penalised, resolved from words into token ids."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence

from stretto.roles.messages import Controls, SamplingParams
from stretto.roles.tokenizer.refusal import Refused, check_text

MAX_BAD_WORDS = 256
MAX_BAD_WORD_CHARS = 128

Encode = Callable[[str], list[int]]


def resolve_controls(
    params: SamplingParams, stop_ids: Sequence[int], size: int, encode: Encode
) -> Controls | None:
    """Controls of a request, None where it has none. `stop_ids` are banned before `min_tokens`.

    `encode` turns text into ids without special tokens; ids run from 0 to `size` - 1. Raises `Refused`.
    """
    bias = sorted(params.logit_bias.items())
    allowed = params.allowed_token_ids
    check_ids((token for token, _ in bias), size, "logit_bias")
    if allowed is not None:
        check_ids(allowed, size, "allowed_token_ids")
    bad_words = _bad_words(params.bad_words, encode)
    controls = Controls(
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        repetition_penalty=params.repetition_penalty,
        bias_ids=int32(token for token, _ in bias),
        bias_values=array("f", (value for _, value in bias)).tobytes(),
        allowed_ids=int32(sorted(set(allowed or ()))),
        bad_words=bad_words,
        min_tokens=params.min_tokens if stop_ids else 0,
        min_tokens_ids=int32(stop_ids) if params.min_tokens else b"",
    )
    if allowed is not None:
        _check_choice(allowed, controls)
    return None if controls == Controls() else controls


def _check_choice(allowed: Sequence[int], controls: Controls) -> None:
    """Raise `Refused` where nothing is left of the allowed ids to sample."""
    banned = array(
        "i", controls.min_tokens_ids + b"".join(word for word in controls.bad_words if len(word) == 4)
    )
    if set(allowed) <= set(banned):
        why = "is empty" if not allowed else "has only ids that min_tokens or bad_words forbid"
        raise Refused(f"allowed_token_ids {why}: no token could follow.", "allowed_token_ids")


def check_ids(ids: Iterable[int], size: int, param: str) -> None:
    """Raise `Refused` for an id outside [0, size)."""
    for token in ids:
        if not 0 <= token < size:
            raise Refused(f"{param} has {token}, but token ids run from 0 to {size - 1}.", param)


def int32(ids: Iterable[int]) -> bytes:
    """The ids as a little-endian buffer."""
    return array("i", ids).tobytes()


def _bad_words(words: Sequence[str], encode: Encode) -> tuple[bytes, ...]:
    """Every way a word may come: at the beginning of a text, and after a space."""
    if len(words) > MAX_BAD_WORDS:
        raise Refused(f"bad_words may have {MAX_BAD_WORDS} entries, not {len(words)}.", "bad_words")
    found: dict[bytes, None] = {}
    for word in words:
        check_text(word, "bad_words")
        if not 0 < len(word) <= MAX_BAD_WORD_CHARS:
            raise Refused(
                f"bad_words has {word[:20]!r}: a word has 1 to {MAX_BAD_WORD_CHARS} characters.", "bad_words"
            )
        found |= dict.fromkeys(map(int32, _spellings(word, encode)))
    return tuple(found)


def _spellings(word: str, encode: Encode) -> list[list[int]]:
    """The word's ids without and with a space before it; both are vLLM's.

    vLLM takes the second only where it is as long as the first. Here it is left out only where the first
    bans it anyway, so that " Strawberry" of one token is banned although "Strawberry" has two.
    """
    word = word.lstrip() or word
    bare, spaced = encode(word), encode(" " + word)
    if not bare:
        raise Refused(f"bad_words has {word!r}, which the tokenizer does not know.", "bad_words")
    return [bare] if spaced[-len(bare) :] == bare else [bare, spaced]
