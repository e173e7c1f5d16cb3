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
        if not allowed:
            raise Refused("allowed_token_ids is empty: then no token could follow.", "allowed_token_ids")
        check_ids(allowed, size, "allowed_token_ids")
    controls = Controls(
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        repetition_penalty=params.repetition_penalty,
        bias_ids=int32(token for token, _ in bias),
        bias_values=array("f", (value for _, value in bias)).tobytes(),
        allowed_ids=int32(sorted(set(allowed or ()))),
        bad_words=_bad_words(params.bad_words, encode),
        min_tokens=params.min_tokens,
        min_tokens_ids=int32(stop_ids) if params.min_tokens else b"",
    )
    return None if controls == Controls() else controls


def check_ids(ids: Iterable[int], size: int, param: str) -> None:
    """Raise `Refused` for an id outside [0, size)."""
    for token in ids:
        if not 0 <= token < size:
            raise Refused(f"{param} has {token}, but token ids run from 0 to {size - 1}.", param)


def int32(ids: Iterable[int]) -> bytes:
    """The ids as a little-endian buffer."""
    return array("i", ids).tobytes()


def _bad_words(words: Sequence[str], encode: Encode) -> tuple[bytes, ...]:
    """Every way a word may come: at the beginning of a text, and after a space, as in vLLM."""
    if len(words) > MAX_BAD_WORDS:
        raise Refused(f"bad_words may have {MAX_BAD_WORDS} entries, not {len(words)}.", "bad_words")
    found: dict[bytes, None] = {}
    for word in words:
        check_text(word, "bad_words")
        if not word.strip() or len(word) > MAX_BAD_WORD_CHARS:
            raise Refused(
                f"bad_words has {word[:20]!r}: a word has 1 to {MAX_BAD_WORD_CHARS} characters.", "bad_words"
            )
        bare, spaced = encode(word.lstrip()), encode(" " + word.lstrip())
        found[int32(bare)] = None
        # A tokenizer that writes the space as a token of its own bans the same ids after it anyway.
        if spaced and (not bare or spaced[0] != bare[0]) and len(spaced) == len(bare):
            found[int32(spaced)] = None
    found.pop(b"", None)
    if words and not found:
        raise Refused("bad_words has nothing that the tokenizer knows.", "bad_words")
    return tuple(found)
