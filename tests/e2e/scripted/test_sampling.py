"""Sampled tokens have the distribution that was asked for, and a seed gives the same ones come what may."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from e2e.scripted.scripts import Case
from e2e.scripted.shared import COIN, DICE, FACES, LONG, UNEVEN
from e2e.scripted.trials import Bench

CRITICAL = {1: 10.83, 2: 13.82, 3: 16.27, 4: 18.47, 7: 24.32, 49: 85.35}
"""Values of chi-squared by degrees of freedom that chance exceeds once in 1000."""

SAMPLES = {"n": 64, "max_tokens": 60, "temperature": 1.0}


def softmax(logits: Mapping[int, float]) -> dict[int, float]:
    weights = {token: math.exp(logit) for token, logit in logits.items()}
    return {token: weight / sum(weights.values()) for token, weight in weights.items()}


def scaled(temperature: float) -> dict[int, float]:
    """Probabilities of the faces at a temperature, the likeliest first."""
    tempered = softmax({token: logit / temperature for token, logit in FACES.items()})
    return dict(sorted(tempered.items(), key=lambda face: -face[1]))


def among(kept: Sequence[int], probabilities: Mapping[int, float]) -> dict[int, float]:
    return {token: probabilities[token] / sum(probabilities[i] for i in kept) for token in kept}


def nucleus(probabilities: Mapping[int, float], mass: float) -> list[int]:
    """The likeliest faces, as few as have the mass."""
    kept, reached = [], 0.0
    for token, probability in probabilities.items():
        if reached < mass:
            kept.append(token)
        reached += probability
    return kept


def probable(probabilities: Mapping[int, float], share: float) -> list[int]:
    best = max(probabilities.values())
    return [token for token, probability in probabilities.items() if probability >= share * best]


def filtered() -> dict[int, float]:
    """All at once: the temperature, then top_k, then top_p of what is left, then min_p of that."""
    kept = among(list(scaled(1.5))[:6], scaled(1.5))
    kept = among(nucleus(kept, 0.9), kept)
    return among(probable(kept, 0.4), kept)


WANTED: dict[str, tuple[dict[str, Any], dict[int, float]]] = {
    "temperature 1": ({}, scaled(1.0)),
    "temperature 0.5": ({"temperature": 0.5}, scaled(0.5)),
    "temperature 2": ({"temperature": 2.0}, scaled(2.0)),
    "top_k": ({"top_k": 3}, among(list(scaled(1.0))[:3], scaled(1.0))),
    "top_p": ({"top_p": 0.8}, among(nucleus(scaled(1.0), 0.8), scaled(1.0))),
    "min_p": ({"min_p": 0.2}, among(probable(scaled(1.0), 0.2), scaled(1.0))),
    "all of them": ({"temperature": 1.5, "top_k": 6, "top_p": 0.9, "min_p": 0.4}, filtered()),
}


def chi_squared(counts: Mapping[Any, int], probabilities: Mapping[Any, float]) -> float:
    total = sum(counts.values())
    return sum((counts.get(k, 0) - total * p) ** 2 / (total * p) for k, p in probabilities.items())


def rolls(bench: Bench, seed: int, **fields: Any) -> list[list[int]]:
    return [choice.ids for choice in bench.ask(DICE, **{**SAMPLES, "seed": seed, **fields}).choices]


@pytest.mark.parametrize("kind", WANTED)
def test_tokens_come_as_often_as_they_should(roomy: Bench, kind: str) -> None:
    fields, probabilities = WANTED[kind]
    counts = Counter(token for seed in (1, 2) for ids in rolls(roomy, seed, **fields) for token in ids)
    assert sum(counts.values()) == 2 * 64 * 60
    assert set(counts) <= set(probabilities)
    assert chi_squared(counts, probabilities) < CRITICAL[len(probabilities) - 1]


def test_a_token_does_not_depend_on_the_one_before_it_nor_on_its_neighbour(roomy: Bench) -> None:
    texts = [ids for seed in (3, 4) for ids in rolls(roomy, seed)]
    faces = scaled(1.0)
    pairs = {(a, b): faces[a] * faces[b] for a in list(faces)[:7] for b in list(faces)[:7]}
    share = sum(pairs.values())
    for couples in (
        [pair for ids in texts for pair in zip(ids[::2], ids[1::2], strict=True)],
        [
            pair
            for one, other in zip(texts[::2], texts[1::2], strict=True)
            for pair in zip(one, other, strict=True)
        ],
    ):
        counts = Counter(pair for pair in couples if pair in pairs)
        assert chi_squared(counts, {pair: p / share for pair, p in pairs.items()}) < CRITICAL[49]


SEEDED: list[tuple[Case, dict[str, Any]]] = [
    (DICE, {"temperature": 1.0, "seed": 11}),
    (DICE, {"temperature": 0.8, "seed": 2**64 - 1, "top_p": 0.9}),
    (DICE, {"temperature": 1.2, "seed": 12, "frequency_penalty": 0.7, "presence_penalty": -0.3}),
    (UNEVEN, {"temperature": 1.0, "seed": 13, "top_k": 5, "logprobs": 2}),
    (UNEVEN, {"temperature": 1.5, "seed": 14, "min_p": 0.05, "repetition_penalty": 1.3}),
    (COIN, {"temperature": 1.0, "seed": 15, "min_tokens": 30}),
    (DICE, {"temperature": 1.0, "seed": 16, "bad_words": ["aa", "b"]}),
    (LONG, {"temperature": 1.0, "seed": 17}),
]
"""Requests that between them use all that a sequence keeps on the device."""


def test_a_seed_gives_the_same_alone_and_in_company_and_after_a_hit(roomy: Bench) -> None:
    alone = [roomy.ask(case, **fields) for case, fields in SEEDED]
    calls = [lambda case=case, fields=fields: roomy.ask(case, **fields) for case, fields in SEEDED]
    together = [future.result() for future in roomy.at_once(calls)]
    for first, again, (case, _) in zip(alone, together, SEEDED, strict=True):
        assert again.cached_tokens == len(roomy.shelf.prompt(case)) - 1
        assert again.choices == first.choices


def test_seeds_differ_and_no_seed_is_a_fresh_one(roomy: Bench) -> None:
    seeds = [11, 12, -11, None, None]
    texts = {tuple(roomy.ask(DICE, temperature=1, seed=seed).only.ids) for seed in seeds}
    assert len(texts) == len(seeds)


def test_a_seed_gives_the_same_after_retractions(roomy: Bench, tight: Bench) -> None:
    before = tight.metrics()["retractions_total"]
    calls = [lambda case=case, fields=fields: tight.ask(case, **fields) for case, fields in SEEDED]
    together = [future.result() for future in tight.at_once(calls)]
    assert tight.metrics()["retractions_total"] - before >= 3
    for (case, fields), answer in zip(SEEDED, together, strict=True):
        assert answer.choices == roomy.ask(case, **fields).choices
