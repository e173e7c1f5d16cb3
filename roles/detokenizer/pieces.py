"""What each token contributes to the text, looked up instead of decoded again.

A table fills itself as tokens are first seen, so that it costs no start-up time and little memory.
"""

from __future__ import annotations

import re

from tokenizers import Tokenizer as Vocabulary

_BYTE_ENTRY = re.compile("<0x([0-9A-Fa-f]{2})>")


def special_ids(vocabulary: Vocabulary) -> frozenset[int]:
    """Ids of the tokens that are left out where special tokens are skipped."""
    added = vocabulary.get_added_tokens_decoder()
    return frozenset(token for token, entry in added.items() if entry.special)


class _Pieces:
    """Token id to its entry in the vocabulary, "" for ids that have none and for those that are skipped."""

    def __init__(self, vocabulary: Vocabulary, skipped: frozenset[int]) -> None:
        self._vocabulary = vocabulary
        self._skipped = skipped

    def entry(self, token: int) -> str:
        return "" if token in self._skipped else self._vocabulary.id_to_token(token) or ""


class BytePieces(dict[int, str | bytes]):
    """Byte-level BPE: the token's text where its bytes are whole characters, else its bytes."""

    def __init__(self, vocabulary: Vocabulary, skipped: frozenset[int]) -> None:
        super().__init__()
        self._source = _Pieces(vocabulary, skipped)

    def __missing__(self, token: int) -> str | bytes:
        data = bytes_of(self._source.entry(token))
        try:
            self[token] = data.decode()
        except UnicodeDecodeError:
            self[token] = data
        return self[token]


class FallbackPieces(dict[int, str | int]):
    """SentencePiece: the token's text with real spaces, or the byte that the token stands for."""

    def __init__(self, vocabulary: Vocabulary, skipped: frozenset[int], mark: str) -> None:
        """`mark` is what the vocabulary writes for a space."""
        super().__init__()
        self._source = _Pieces(vocabulary, skipped)
        self._mark = mark

    def __missing__(self, token: int) -> str | int:
        piece = self._source.entry(token).replace(self._mark, " ")
        byte = byte_of(piece)
        self[token] = piece if byte is None else byte
        return self[token]


def byte_of(piece: str) -> int | None:
    """0xAB for "<0xAB>", None for all else."""
    match = _BYTE_ENTRY.fullmatch(piece)
    return None if match is None else int(match[1], 16)


def _byte_values() -> dict[str, int]:
    """Which byte each character of a byte-level vocabulary names (GPT-2's `bytes_to_unicode`, reversed)."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    return {chr(byte if byte in printable else next(spare)): byte for byte in range(256)}


_BYTE_VALUES = _byte_values()


def bytes_of(entry: str) -> bytes:
    """Bytes of a byte-level entry; an entry with other characters (an added token) stands for itself."""
    try:
        return bytes([_BYTE_VALUES[character] for character in entry])
    except KeyError:
        return entry.encode()
