"""What a server must make of a byte-level model that says exactly this."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from e2e.scripted.scripts import Case, Step
from scripted import DEFAULT_EXTRA, EOS, EXTRA
from scripted import END as END_OF_TURN

HELLO, WORLD, END, HALF, INSIDE = range(EXTRA, EXTRA + 5)
"""Tokens " hello", " world", "END", the first half of a 🙂, "xENDy"."""
A, B, C, D, X, Z = b"abcdxz"
SMILE = "🙂".encode()


def spell(*parts: str | bytes | int | Mapping[int, float]) -> list[Any]:
    """Tokens of texts, byte by byte, among tokens and logits that are given."""
    steps: list[Step] = []
    for part in parts:
        match part:
            case str():
                steps += part.encode()
            case bytes():
                steps += part
            case _:
                steps.append(part)
    return steps


STOPS = [
    Case(name="plain", says=spell("Hello", EOS), text="Hello", ids=spell("Hello", EOS)),
    Case(
        name="length",
        says=spell("Hello", EOS),
        fields={"max_tokens": 3},
        text="Hel",
        ids=b"Hel",
        finish="length",
    ),
    Case(
        name="a stop string over several tokens",
        says=spell("abcSTOPdef", EOS),
        fields={"stop": "STOP"},
        text="abc",
        ids=b"abcSTOP",
        stop="STOP",
    ),
    Case(
        name="a stop string that is shown",
        says=spell("abcSTOPdef", EOS),
        fields={"stop": ["STOP"], "include_stop_str_in_output": True},
        text="abcSTOP",
        ids=b"abcSTOP",
        stop="STOP",
    ),
    Case(
        name="text held back is flushed at the end",
        says=spell("abcSTO", EOS),
        fields={"stop": "STOP"},
        text="abcSTO",
        ids=spell("abcSTO", EOS),
    ),
    Case(
        name="text held back is flushed at the limit",
        says=spell("abcSTOP", EOS),
        fields={"stop": "STOP", "max_tokens": 6},
        text="abcSTO",
        ids=b"abcSTO",
        finish="length",
    ),
    Case(
        name="text held back in vain",
        says=spell("aSTaSTSTOxSTOy", EOS),
        fields={"stop": "STOP"},
        text="aSTaSTSTOxSTOy",
        ids=spell("aSTaSTSTOxSTOy", EOS),
    ),
    Case(
        name="a stop string that begins again within itself",
        says=spell("xaabaabaaab", EOS),
        fields={"stop": "aabaaa"},
        text="xaab",
        ids=b"xaabaabaaa",
        stop="aabaaa",
    ),
    Case(
        name="a stop inside a token",
        says=spell("ab", INSIDE, "cd", EOS),
        fields={"stop": "END"},
        text="abx",
        ids=spell("ab", INSIDE),
        stop="END",
    ),
    Case(
        name="a stop inside a token that is shown",
        says=spell("ab", INSIDE, "cd", EOS),
        fields={"stop": "END", "include_stop_str_in_output": True},
        text="abxEND",
        ids=spell("ab", INSIDE),
        stop="END",
    ),
    Case(
        name="of two stops the earliest wins",
        says=spell("ab", INSIDE, "cd", EOS),
        fields={"stop": ["NDy", "ENDy", "cd"]},
        text="abx",
        ids=spell("ab", INSIDE),
        stop="ENDy",
    ),
    Case(
        name="of two stops that are spelt the first complete one wins",
        says=spell("abENDED", EOS),
        fields={"stop": ["ENDED", "END"]},
        text="ab",
        ids=b"abEND",
        stop="END",
    ),
    Case(
        name="a stop begun in one token and ended in another",
        says=spell("a", HELLO, WORLD, "!", EOS),
        fields={"stop": "llo wor"},
        text="a he",
        ids=spell("a", HELLO, WORLD),
        stop="llo wor",
    ),
    Case(
        name="a stop string as the last allowed token",
        says=spell("abSTOP", EOS),
        fields={"stop": "STOP", "max_tokens": 6},
        text="ab",
        ids=b"abSTOP",
        stop="STOP",
    ),
    Case(
        name="a stop string around a hidden token",
        says=spell("abST", EOS, "OPcd", EOS),
        fields={"stop": "STOP", "ignore_eos": True, "max_tokens": 20},
        text="ab",
        ids=spell("abST", EOS, "OP"),
        stop="STOP",
    ),
    Case(
        name="a stop string of several bytes to a character",
        says=spell("a", SMILE, "東b", EOS),
        fields={"stop": "🙂東"},
        text="a",
        ids=spell("a", SMILE, "東"),
        stop="🙂東",
    ),
    Case(
        name="an end before the stop string is whole",
        says=spell("ab", HELLO, EOS, WORLD),
        fields={"stop": "hello world"},
        text="ab hello",
        ids=spell("ab", HELLO, EOS),
    ),
]

ENDS = [
    Case(
        name="end of sequence as the last allowed token",
        says=spell("ab", EOS),
        fields={"max_tokens": 3},
        text="ab",
        ids=spell("ab", EOS),
    ),
    Case(name="end of sequence at once", says=spell(EOS), text="", ids=[EOS]),
    Case(
        name="nothing after the end of sequence",
        says=spell("ab", EOS, "cdef"),
        fields={"max_tokens": 40},
        text="ab",
        ids=spell("ab", EOS),
    ),
    Case(
        name="the model's other end",
        says=spell("ab", END_OF_TURN, "cd", EOS),
        text="ab",
        ids=spell("ab", END_OF_TURN),
    ),
    Case(
        name="both ends ignored",
        says=spell("ab", EOS, "cd", END_OF_TURN, "ef"),
        fields={"ignore_eos": True, "max_tokens": 8},
        text="abcdef",
        ids=spell("ab", EOS, "cd", END_OF_TURN, "ef"),
        finish="length",
    ),
    Case(
        name="both ends ignored and shown",
        says=spell("ab", EOS, "cd", END_OF_TURN, "ef"),
        fields={"ignore_eos": True, "max_tokens": 8, "skip_special_tokens": False},
        text="ab<|eos|>cd<|end|>ef",
        ids=spell("ab", EOS, "cd", END_OF_TURN, "ef"),
        finish="length",
    ),
    Case(
        name="the model's end, ignored as such, as the client's",
        says=spell("ab", EOS, "cd", END_OF_TURN, "ef"),
        fields={"ignore_eos": True, "stop_token_ids": [END_OF_TURN], "max_tokens": 8},
        text="abcd",
        ids=spell("ab", EOS, "cd", END_OF_TURN),
        stop=END_OF_TURN,
    ),
    Case(
        name="a stop token",
        says=spell("abcd", EOS),
        fields={"stop_token_ids": [Z, C]},
        text="ab",
        ids=b"abc",
        stop=C,
    ),
    Case(
        name="a stop token that is shown",
        says=spell("abcd", EOS),
        fields={"stop_token_ids": [C], "include_stop_str_in_output": True},
        text="abc",
        ids=b"abc",
        stop=C,
    ),
    Case(
        name="a stop token flushes the text held back",
        says=spell("abSTz", EOS),
        fields={"stop_token_ids": [Z], "stop": "STOP"},
        text="abST",
        ids=b"abSTz",
        stop=Z,
    ),
    Case(name="no tokens at all", says=spell("ab"), fields={"max_tokens": 0}, finish="length"),
    Case(
        name="no end before min_tokens, however likely",
        says=spell({A: 0.0, EOS: -10.0, END_OF_TURN: -11.0}),
        fields={"logit_bias": {str(EOS): 100, str(END_OF_TURN): 100}, "min_tokens": 3},
        text="aaa",
        ids=spell("aaa", EOS),
    ),
    Case(
        name="a bias that ends at once",
        says=spell({A: 0.0, EOS: -10.0}),
        fields={"logit_bias": {str(EOS): 100}},
        ids=[EOS],
    ),
    Case(
        name="no stop token before min_tokens",
        says=spell({Z: 1.0, A: 0.0}),
        fields={"stop_token_ids": [Z], "min_tokens": 2},
        text="aa",
        ids=b"aaz",
        stop=Z,
    ),
    Case(
        name="no stop string before min_tokens",
        says=spell("xSTOPySTOPz", EOS),
        fields={"stop": "STOP", "min_tokens": 6},
        text="xSTOPy",
        ids=b"xSTOPySTOP",
        stop="STOP",
    ),
    Case(
        name="min_tokens up to the limit",
        says=spell({EOS: 1.0, A: 0.0}),
        fields={"min_tokens": 4, "max_tokens": 4},
        text="aaaa",
        ids=b"aaaa",
        finish="length",
    ),
]

CHARACTERS = [
    Case(
        name="characters split over tokens",
        says=spell("a🙂東é!", EOS),
        text="a🙂東é!",
        ids=spell("a🙂東é!", EOS),
    ),
    Case(
        name="a character of a long token and short ones",
        says=spell(HALF, SMILE[2:], HALF, SMILE[2:], "!", EOS),
        text="🙂🙂!",
        ids=spell(HALF, SMILE[2:], HALF, SMILE[2:], "!", EOS),
    ),
    Case(
        name="a family of emoji",
        says=spell("👩‍👩‍👧‍👦", EOS),
        text="👩‍👩‍👧‍👦",
        ids=spell("👩‍👩‍👧‍👦", EOS),
    ),
    Case(
        name="a character cut off by the limit",
        says=spell("a", SMILE, EOS),
        fields={"max_tokens": 3},
        text="a\ufffd",
        ids=spell("a", SMILE[:2]),
        finish="length",
    ),
    Case(
        name="a character cut off by the end",
        says=spell("a", SMILE[:3], EOS),
        text="a\ufffd",
        ids=spell("a", SMILE[:3], EOS),
    ),
    Case(
        name="bytes of no character",
        says=spell(b"\x80a\xff", EOS),
        text="\ufffda\ufffd",
        ids=spell(b"\x80a\xff", EOS),
    ),
    Case(
        name="a prompt that ends in half a character",
        says=spell(SMILE[2:], "!", EOS),
        prompt=[A, *SMILE[:2]],
        text="🙂!",
        ids=spell(SMILE[2:], "!", EOS),
    ),
    Case(
        name="a prompt that ends in half a character for ever",
        says=spell("x", EOS),
        prompt=[A, *SMILE[:2]],
        text="x",
        ids=spell("x", EOS),
    ),
    Case(name="leading spaces", says=spell(HELLO, WORLD, EOS), text=" hello world", ids=[HELLO, WORLD, EOS]),
    Case(
        name="spaces and lines",
        says=spell("  a \n\n\tb  ", EOS),
        text="  a \n\n\tb  ",
        ids=spell("  a \n\n\tb  ", EOS),
    ),
]

CONTROLS = [
    Case(
        name="presence_penalty sees the newest token, once, and not the prompt",
        says=spell({A: 1.0, B: 0.5}),
        fields={"presence_penalty": 0.6, "max_tokens": 6},
        text="abaaaa",
        ids=b"abaaaa",
        finish="length",
    ),
    Case(
        name="frequency_penalty counts up to the newest token",
        says=spell({A: 1.0, B: 0.5, C: 0.3}),
        fields={"frequency_penalty": 0.3, "max_tokens": 10},
        text="aabacbacba",
        ids=b"aabacbacba",
        finish="length",
    ),
    Case(
        name="repetition_penalty sees the prompt and the newest token",
        says=spell({C: 2.0, A: 1.5, B: 1.2}),
        prompt=b"xc",
        fields={"repetition_penalty": 1.5, "max_tokens": 5},
        text="acccc",
        ids=b"acccc",
        finish="length",
    ),
    Case(
        name="repetition_penalty multiplies what is negative",
        says=spell({A: -1.0, B: -1.2, C: -1.6}),
        prompt=b"xy",
        fields={"repetition_penalty": 1.5, "max_tokens": 5},
        text="abaaa",
        ids=b"abaaa",
        finish="length",
    ),
    Case(
        name="repetition comes before presence",
        says=spell({A: 2.0, B: 1.3}),
        prompt=b"xy",
        fields={"repetition_penalty": 2, "presence_penalty": -0.5, "max_tokens": 4},
        text="aaaa",
        ids=b"aaaa",
        finish="length",
    ),
    Case(
        name="logit_bias",
        says=spell({A: 1.0, B: 0.5}, {A: 1.0, C: -50.0}, EOS),
        fields={"logit_bias": {str(B): 0.6, str(A): -1.0, str(C): 51}},
        text="bc",
        ids=spell("bc", EOS),
    ),
    Case(
        name="allowed_token_ids",
        says=spell({A: 3.0, B: 2.0, C: 1.0}, {EOS: 1.0, C: 0.5, B: 0.0}),
        fields={"allowed_token_ids": [B, C], "max_tokens": 3},
        text="bcc",
        ids=b"bcc",
        finish="length",
    ),
    Case(
        name="a bad word of one token",
        says=spell({Z: 1.0, A: 0.0}, "b", {Z: 1.0, A: 0.0}, EOS),
        fields={"bad_words": ["z"]},
        text="aba",
        ids=spell("aba", EOS),
    ),
    Case(
        name="a bad word of several tokens",
        says=spell("a", {B: 1.0, C: 0.0}, "x", {B: 1.0, C: 0.0}, {C: 1.0, D: 0.0}, EOS),
        fields={"bad_words": ["ab", "xbc"]},
        text="acxbd",
        ids=spell("acxbd", EOS),
    ),
    Case(
        name="log-probabilities are the model's own whatever bends them",
        says=spell({A: 1.0, B: 0.5, C: -0.25}, {A: 0.125, B: 0.5, Z: 0.375}, EOS),
        fields={"logit_bias": {str(C): 10}, "presence_penalty": 2},
        text="cb",
        ids=spell("cb", EOS),
    ),
]

PROMPTS = [
    Case(
        name="echo",
        key=ord("1"),
        says=spell("cd", EOS),
        fields={"echo": True},
        text="cd",
        ids=spell("cd", EOS),
    ),
    Case(
        name="echo of a prompt alone",
        key=ord("2"),
        says=spell("cd", EOS),
        hears=spell({A: 1.0, B: 2.0}, {B: 0.25, C: 0.5, D: -1.0}, {D: 1.0, A: 0.0, B: -1.0}),
        prompt=b"abd",
        fields={"echo": True, "max_tokens": 0},
        finish="length",
    ),
    Case(
        name="echo of a prompt that ends in half a character",
        key=ord("4"),
        says=spell(SMILE[2:], "!", EOS),
        prompt=[A, *SMILE[:2]],
        fields={"echo": True},
        text="🙂!",
        ids=spell(SMILE[2:], "!", EOS),
    ),
    Case(
        name="echo of more than characters",
        key=ord("3"),
        says=spell("é", EOS),
        hears=spell({A: 1.0, 0xC3: 2.0}, {A: 1.0, 0xA9: 2.0}, {HELLO: 0.5, WORLD: 0.5}),
        prompt=spell("é", HELLO),
        fields={"echo": True},
        text="é",
        ids=spell("é", EOS),
    ),
]

CASES = [*STOPS, *ENDS, *CHARACTERS, *CONTROLS, *PROMPTS]

EXTRA_TOKENS = [*DEFAULT_EXTRA, "xENDy"]
SPECIALS = ["<|bos|>", "<|eos|>", "<|start|>", "<|end|>"]
RAW = [
    *(bytes([byte]) for byte in range(256)),
    *(token.encode() if isinstance(token, str) else token for token in [*SPECIALS, *EXTRA_TOKENS]),
]
"""The bytes of each token."""
