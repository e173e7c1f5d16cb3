"""How long a text can be and still fit the context, without encoding it.

Encoding runs at a few megabytes a second, so a text that cannot fit by its length alone is refused unread.
No text that would fit may be refused: a token covers at most as many characters as the longest entry of the
vocabulary has, provided that nothing on the way drops or merges characters. Where a tokenizer's stages might
(Unicode compatibility forms, tokens that swallow the spaces beside them, whitespace splitting, unknown
characters fused into one token), there is no bound, and `max_body_bytes` alone limits the work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stretto.roles.tokenizer.files import Pipeline, stages

CANONICAL_DECOMPOSITION = 4
"""Longest canonical decomposition of a character (U+1F82 has it): NFC shrinks a text by no more than that."""

_KEEPS_ALL = {"ByteLevel", "Digits", "Metaspace", "UnicodeScripts"}


@dataclass(frozen=True)
class Bound:
    """At most `chars` characters per token, those in `droppable` (which may vanish) not counted."""

    chars: int
    droppable: str = ""

    def least_tokens(self, text: str) -> int:
        """Tokens that `text` has at the very least."""
        kept = len(text) - sum(map(text.count, self.droppable))
        return -(-kept // self.chars)


def bound_of(pipeline: Pipeline, vocabulary: dict[str, int]) -> Bound | None:
    """The bound that holds for a tokenizer, or None where none is certain."""
    shrink = _shrinkage(stages(pipeline.normalizer, "normalizers"))
    splitters = stages(pipeline.pre_tokenizer, "pretokenizers")
    swallows = any(token.lstrip or token.rstrip for token in pipeline.added_tokens)
    droppable = _droppable(pipeline, splitters, vocabulary)
    if shrink is None or droppable is None or swallows or not all(map(_keeps, splitters)):
        return None
    return Bound(shrink * max(map(len, vocabulary)), droppable)


def _shrinkage(normalizers: list[dict[str, Any]]) -> int | None:
    """Characters that at most become one, None where there is no limit."""
    shrink = 1
    for stage in normalizers:
        if stage["type"] == "NFC":
            shrink *= CANONICAL_DECOMPOSITION
        elif stage["type"] == "Replace":
            pattern = stage["pattern"].get("String")
            if pattern is None or len(stage["content"]) < len(pattern):
                return None
        elif stage["type"] != "Prepend":
            return None
    return shrink


def _keeps(splitter: dict[str, Any]) -> bool:
    if splitter["type"] in ("Split", "Punctuation"):
        return splitter.get("behavior") != "Removed"
    return splitter["type"] in _KEEPS_ALL


def _droppable(pipeline: Pipeline, splitters: list[dict[str, Any]], vocabulary: dict[str, int]) -> str | None:
    """Characters that leave no token of their own; None where they cannot be told.

    A byte-level vocabulary may lack some bytes (SmolLM2's lacks 0x04); a character that has lost all its
    bytes is gone. Continuation bytes must all be there, so that this befalls ASCII characters only.
    """
    if pipeline.model.type != "BPE":
        return None
    if pipeline.model.byte_fallback:
        return "" if all(f"<0x{byte:02X}>" in vocabulary for byte in range(256)) else None
    if not any(stage["type"] == "ByteLevel" for stage in splitters):
        return None
    names = byte_names()
    if any(names[byte] not in vocabulary for byte in range(0x80, 0xC0)):
        return None
    return "".join(chr(byte) for byte in range(0x80) if names[byte] not in vocabulary)


def byte_names() -> list[str]:
    """The character by which byte-level BPE names each of the 256 bytes (GPT-2's `bytes_to_unicode`)."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(spare)) for byte in range(256)]
