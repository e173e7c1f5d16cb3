"""How a model's tokens become text: by tables for the usual two families, by a window for the rest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
from tokenizers import Tokenizer as Vocabulary

from stretto.roles.actor import SetupError
from stretto.roles.detokenizer.decoding import ByteLevelText, Decoding, FallbackText, WindowText
from stretto.roles.detokenizer.pieces import BytePieces, FallbackPieces, byte_of, bytes_of, special_ids


class Scheme(Protocol):
    """The texts of one vocabulary."""

    def begin(self, context: Iterable[int], skip_special: bool) -> Decoding:
        """The text of one request, after the prompt's last ids."""
        ...

    def text(self, ids: Sequence[int]) -> str:
        """The full decode, special tokens included."""
        ...

    def raw(self, token: int) -> bytes:
        """What the token stands for inside a text, a leading space included; empty for an unknown id."""
        ...


class _Decoded:
    """The vocabulary's own full decode."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def text(self, ids: Sequence[int]) -> str:
        return self._vocabulary.decode(list(ids), skip_special_tokens=False)


class ByteLevelScheme(_Decoded):
    """GPT-2, Llama 3, Qwen, SmolLM and most others."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(vocabulary)
        self._all = BytePieces(vocabulary, frozenset())
        self._plain = BytePieces(vocabulary, special_ids(vocabulary))

    def begin(self, context: Iterable[int], skip_special: bool) -> ByteLevelText:
        return ByteLevelText(self._plain if skip_special else self._all, context)

    def raw(self, token: int) -> bytes:
        piece = self._all[token]
        return piece.encode() if isinstance(piece, str) else piece


class FallbackScheme(_Decoded):
    """Llama 2, Mistral, Gemma."""

    def __init__(self, vocabulary: Vocabulary, mark: str, lead: int) -> None:
        super().__init__(vocabulary)
        self._all = FallbackPieces(vocabulary, frozenset(), mark)
        self._plain = FallbackPieces(vocabulary, special_ids(vocabulary), mark)
        self._lead = lead

    def begin(self, context: Iterable[int], skip_special: bool) -> FallbackText:
        return FallbackText(self._plain if skip_special else self._all, self._lead, context)

    def raw(self, token: int) -> bytes:
        piece = self._all[token]
        return piece.encode() if isinstance(piece, str) else bytes([piece])


class WindowScheme(_Decoded):
    """Any decoder that `tokenizers` has."""

    def __init__(self, vocabulary: Vocabulary, stages: Iterable[str] = ()) -> None:
        """`stages` are the types of the decoder's stages."""
        super().__init__(vocabulary)
        self._stages = frozenset(stages)

    def begin(self, context: Iterable[int], skip_special: bool) -> WindowText:
        return WindowText(self._vocabulary, skip_special, context)

    def raw(self, token: int) -> bytes:
        """Bytes of byte-level and byte entries; of others, what a second one adds to a first."""
        entry = self._vocabulary.id_to_token(token) or ""
        byte = byte_of(entry)
        if "ByteLevel" in self._stages:
            return bytes_of(entry)
        if "ByteFallback" in self._stages and byte is not None:
            return bytes([byte])
        once, twice = self.text([token]), self.text([token, token])
        return (twice.removeprefix(once) or once).encode()


class _File(msgspec.Struct):
    """`tokenizer.json`, of which only the decoder is read here."""

    decoder: dict[str, Any] | None = None


def load_scheme(model_dir: Path) -> Scheme:
    """Read `tokenizer.json`; raises `SetupError` when there is none."""
    path = model_dir / "tokenizer.json"
    if not path.is_file():
        raise SetupError(f"{model_dir} has no tokenizer.json; convert the tokenizer to that format.")
    decoder = msgspec.json.decode(path.read_bytes(), type=_File).decoder
    return scheme_of(Vocabulary.from_file(str(path)), decoder)


def scheme_of(vocabulary: Vocabulary, decoder: dict[str, Any] | None) -> Scheme:
    """The fastest scheme that gives exactly what this decoder (as `tokenizer.json` has it) would."""
    match stages := _flat(decoder):
        case [{"type": "ByteLevel"}]:
            return ByteLevelScheme(vocabulary)
        case [
            {"type": "Replace", "pattern": {"String": str(mark)}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            *rest,
        ] if (lead := _lead(rest)) is not None:
            return FallbackScheme(vocabulary, mark, lead)
        case _:
            return WindowScheme(vocabulary, (stage["type"] for stage in stages))


def _flat(decoder: dict[str, Any] | None) -> list[dict[str, Any]]:
    if decoder is None:
        return []
    if decoder["type"] != "Sequence":
        return [decoder]
    return [leaf for member in decoder["decoders"] for leaf in _flat(member)]


def _lead(rest: list[dict[str, Any]]) -> int | None:
    """How many leading spaces the last stage drops; None where it does anything else."""
    match rest:
        case []:
            return 0
        case [{"type": "Strip", "content": " ", "start": int(start), "stop": 0}]:
            return start
        case _:
            return None
