"""What a server must make of a model with a SentencePiece vocabulary that says exactly this."""

from __future__ import annotations

from e2e.scripted.scripts import Case, Shelf
from scripted import (
    CHARACTERS,
    SP_BOS,
    SP_BYTES,
    SP_CHARACTERS,
    SP_DEFAULT_EXTRA,
    SP_EOS,
    SP_EXTRA,
    sp_ids,
)

HELLO, WORLD, END = range(SP_EXTRA, SP_EXTRA + 3)
"""Tokens "▁hello", "▁world" and "END"."""


def octets(text: str | bytes) -> list[int]:
    """Byte tokens."""
    return [SP_BYTES + byte for byte in (text.encode() if isinstance(text, str) else text)]


EAST = octets("東")

PIECE_CASES = [
    Case(
        name="a leading space after a prompt",
        prompt=sp_ids("ab"),
        says=[HELLO, WORLD, SP_EOS],
        text=" hello world",
        ids=[HELLO, WORLD, SP_EOS],
    ),
    Case(
        name="no leading space where the text begins",
        key=SP_BOS,
        prompt=[],
        says=[HELLO, WORLD, SP_EOS],
        text="hello world",
        ids=[HELLO, WORLD, SP_EOS],
    ),
    Case(
        name="spaces in a row",
        prompt=sp_ids("ab"),
        says=[*sp_ids("  a  b "), SP_EOS],
        text="  a  b ",
        ids=[*sp_ids("  a  b "), SP_EOS],
    ),
    Case(
        name="characters split over byte tokens",
        prompt=sp_ids("ab"),
        says=[*sp_ids("a🙂東é!"), SP_EOS],
        text="a🙂東é!",
        ids=[*sp_ids("a🙂東é!"), SP_EOS],
    ),
    Case(
        name="a character cut off by the limit",
        prompt=sp_ids("ab"),
        says=[*sp_ids("a"), *EAST, SP_EOS],
        fields={"max_tokens": 3},
        text="a\ufffd\ufffd",
        ids=[*sp_ids("a"), *EAST[:2]],
        finish="length",
    ),
    Case(
        name="a character cut off by the end",
        prompt=sp_ids("ab"),
        says=[*sp_ids("a"), *EAST[:2], SP_EOS],
        text="a\ufffd\ufffd",
        ids=[*sp_ids("a"), *EAST[:2], SP_EOS],
    ),
    Case(
        name="a prompt that ends in half a character",
        prompt=[*sp_ids("a"), *EAST[:2]],
        says=[EAST[2], *sp_ids("!"), SP_EOS],
        text="東!",
        ids=[EAST[2], *sp_ids("!"), SP_EOS],
    ),
    Case(
        name="a stop string with a leading space",
        prompt=sp_ids("ab"),
        says=[HELLO, WORLD, *sp_ids("!"), SP_EOS],
        fields={"stop": " world"},
        text=" hello",
        ids=[HELLO, WORLD],
        stop=" world",
    ),
    Case(
        name="a stop inside a token",
        prompt=sp_ids("ab"),
        says=[HELLO, WORLD, *sp_ids("!"), SP_EOS],
        fields={"stop": "o w", "include_stop_str_in_output": True},
        text=" hello w",
        ids=[HELLO, WORLD],
        stop="o w",
    ),
    Case(
        name="a stop string of byte tokens",
        prompt=sp_ids("ab"),
        says=[*sp_ids("a東b"), SP_EOS],
        fields={"stop": "東"},
        text="a",
        ids=sp_ids("a東b"),
        stop="東",
    ),
    Case(
        name="a stop string of byte tokens that only the limit makes certain",
        prompt=sp_ids("ab"),
        says=[*sp_ids("a東b"), SP_EOS],
        fields={"stop": "東", "max_tokens": 4},
        text="a",
        ids=sp_ids("a東"),
        stop="東",
    ),
    Case(
        name="a stop string of byte tokens that only the end makes certain",
        prompt=sp_ids("ab"),
        says=[*sp_ids("a東"), SP_EOS],
        fields={"stop": "東"},
        text="a",
        ids=[*sp_ids("a東"), SP_EOS],
        stop="東",
    ),
    Case(
        name="text held back is flushed at the end",
        prompt=sp_ids("ab"),
        says=[*sp_ids("a STO"), SP_EOS],
        fields={"stop": " STOP"},
        text="a STO",
        ids=[*sp_ids("a STO"), SP_EOS],
    ),
    Case(
        name="the end shown",
        prompt=sp_ids("ab"),
        says=[*sp_ids("a"), SP_EOS, *sp_ids("b")],
        fields={"ignore_eos": True, "skip_special_tokens": False, "max_tokens": 3},
        text="a</s>b",
        ids=[*sp_ids("a"), SP_EOS, *sp_ids("b")],
        finish="length",
    ),
]

PIECE_RAW = [
    *(b"<unk>", b"<s>", b"</s>"),
    *(bytes([byte]) for byte in range(256)),
    *(piece.replace("▁", " ").encode() for piece in [*CHARACTERS, *SP_DEFAULT_EXTRA]),
]
"""The bytes of each token."""

PIECE_SHELF = Shelf(PIECE_CASES, SP_CHARACTERS + 1, PIECE_RAW, tokenizer="sentencepiece")
