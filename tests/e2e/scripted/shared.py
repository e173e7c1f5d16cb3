"""The byte-level model: scripts for comparisons and computations, beside the cases."""

from __future__ import annotations

import random

from e2e.scripted.cases import CASES, EXTRA_TOKENS, HALF, HELLO, RAW, SMILE, A, B, C, D, X, Z, spell
from e2e.scripted.scripts import Case, Shelf
from scripted import END as END_OF_TURN
from scripted import EOS, START

FACES = {A: 2.0, B: 1.5, C: 1.1, D: 0.5, X: 0.0, Z: -0.4, HELLO: -1.0, ord("!"): -2.0}
"""Logits far enough from each other for every filter to have an edge."""

LETTERS = bytes(b"abcdefghijklmnopqrstuvwxyz"[i % 26] for i in range(3000))

_rng = random.Random(5)


def _uneven() -> dict[int, float]:
    """Logits of all letters, no two of them close."""
    return {letter: 0.11 * i for i, letter in enumerate(_rng.sample(LETTERS[:26], 26))}


DICE = Case(name="the same distribution for ever", says=[FACES])
"""Never ends by itself."""
COIN = Case(name="a distribution with an end", says=[{**FACES, EOS: 0.4}])
LONG = Case(name="a long text", says=spell(LETTERS, EOS), text=LETTERS.decode(), ids=spell(LETTERS, EOS))
SHORT = Case(
    name="a short text", key=ord("?"), says=spell("Hello", EOS), text="Hello", ids=spell("Hello", EOS)
)
UNEVEN = Case(name="a distribution of its own for each token", says=[_uneven() for _ in range(60)])
SCORED = Case(
    name="a prompt with a distribution for each token",
    prompt=bytes(_rng.choice(LETTERS[:26]) for _ in range(30)),
    hears=[_uneven() for _ in range(30)],
    says=spell({A: 1.0, B: 0.5}, {C: 0.25, A: 0.5}, EOS),
    text="aa",
    ids=spell("aa", EOS),
)
CHAT = Case(
    name="a turn",
    key=START,
    prompt=spell("user\nhi", END_OF_TURN, START, "assistant\n"),
    says=spell({A: 1.0, HALF: 0.5}, HALF, *SMILE[2:], "é", EOS),
    text="a🙂é",
    ids=spell("a", HALF, *SMILE[2:], "é", EOS),
)

BROKEN = Case(name="logits beyond all numbers after a token", says=[A, {A: 1e39}])

SHARED = [DICE, COIN, LONG, SHORT, UNEVEN, SCORED, CHAT, BROKEN]

SHELF = Shelf([*CASES, *SHARED], 128, RAW, extra=EXTRA_TOKENS, eos=[EOS, END_OF_TURN])
