"""What is asked: sessions of one or more turns, made of random tokens. The same seed makes the same load."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

Prompt = str | list[int]


class Turn(NamedTuple):
    """One request. In a session of several, its prompt follows all that was said before."""

    prompt: Prompt
    output_tokens: int


Session = list[Turn]


class Shape(NamedTuple):
    """How long prompts and answers are, and what tokens they are made of."""

    input_tokens: int
    output_tokens: int
    spread: float = 0.0
    """Lengths are drawn evenly from (1 - spread) to (1 + spread) times those above."""
    vocabulary: int = 10_000
    """Token ids are drawn evenly from 0 up to, not including, this."""


def independent(shape: Shape, count: int, seed: int) -> list[Session]:
    """Prompts that have nothing in common: no cache helps."""
    rng = Random(seed)
    return [[_turn(shape, rng)] for _ in range(count)]


def shared_prefix(shape: Shape, count: int, seed: int, prefix_tokens: int, prefixes: int) -> list[Session]:
    """Each prompt is one of the prefixes, in turn, and then tokens of its own."""
    rng = Random(seed)
    heads = [_tokens(prefix_tokens, shape, rng) for _ in range(prefixes)]
    return [[_turn(shape, rng, heads[place % prefixes])] for place in range(count)]


def multi_turn(shape: Shape, count: int, seed: int, turns: int) -> list[Session]:
    """Conversations: every turn's prompt is all that was said before, the answers too, and its own tokens."""
    rng = Random(seed)
    return [[_turn(shape, rng) for _ in range(turns)] for _ in range(count)]


def poisson(rate: float, count: int, seed: int) -> list[float]:
    """Seconds from the start to each of `count` arrivals of a Poisson process, `rate` a second."""
    rng, now, arrivals = Random(seed), 0.0, []
    for _ in range(count):
        now += rng.expovariate(rate)
        arrivals.append(now)
    return arrivals


def _turn(shape: Shape, rng: Random, head: Sequence[int] = ()) -> Turn:
    own = _tokens(_length(shape.input_tokens, shape.spread, rng), shape, rng)
    return Turn([*head, *own], _length(shape.output_tokens, shape.spread, rng))


def _tokens(count: int, shape: Shape, rng: Random) -> list[int]:
    return rng.choices(range(shape.vocabulary), k=count)


def _length(mean: int, spread: float, rng: Random) -> int:
    return max(1, rng.randint(round(mean * (1 - spread)), round(mean * (1 + spread))))
