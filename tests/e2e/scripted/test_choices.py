"""Several choices of one request, and several prompts."""

from __future__ import annotations

from typing import Any

import pytest
from e2e.scripted.asking import Answer, together, whole
from e2e.scripted.cases import CASES
from e2e.scripted.shared import COIN, DICE, LONG, SCORED, SHORT
from e2e.scripted.trials import Bench

streams = pytest.mark.parametrize("stream", [False, True])

SEEDED = {"temperature": 1.0, "seed": 7, "max_tokens": 20}


@streams
def test_choices_of_a_seed_differ_and_come_again(roomy: Bench, stream: bool) -> None:
    first = roomy.ask(DICE, n=4, **SEEDED)
    again = roomy.ask(DICE, n=4, stream=stream, **SEEDED)
    assert len({tuple(choice.ids) for choice in first.choices}) == 4
    assert [choice.ids for choice in again.choices] == [choice.ids for choice in first.choices]
    assert [choice.text for choice in again.choices] == [choice.text for choice in first.choices]


def test_more_choices_begin_with_those_of_fewer(roomy: Bench) -> None:
    four = roomy.ask(DICE, n=4, **SEEDED).choices
    for n in (1, 2):
        assert [choice.ids for choice in roomy.ask(DICE, n=n, **SEEDED).choices] == [
            choice.ids for choice in four[:n]
        ]


def test_choices_are_the_same_in_company(roomy: Bench) -> None:
    alone = roomy.ask(DICE, n=4, **SEEDED)
    calls = [lambda seed=seed: roomy.ask(DICE, n=4, **{**SEEDED, "seed": seed}) for seed in (1, 7, 2, 3)]
    assert roomy.at_once(calls, sequences=4)[1].result().choices == alone.choices


def test_choices_are_the_same_after_retractions(roomy: Bench, tight: Bench) -> None:
    fields = {**SEEDED, "max_tokens": 40, "n": 8, "logprobs": 1}
    before = tight.metrics()["retractions_total"]
    crowded = tight.ask(DICE, **fields)
    assert tight.metrics()["retractions_total"] > before
    assert crowded.choices == roomy.ask(DICE, **fields).choices


@streams
def test_the_prompt_counts_once_and_every_choice_counts(roomy: Bench, stream: bool) -> None:
    answer = roomy.ask(COIN, n=5, stream=stream, **SEEDED)
    assert answer.prompt_tokens == len(roomy.shelf.prompt(COIN))
    assert answer.completion_tokens == sum(len(choice.ids) for choice in answer.choices)
    assert {choice.finish for choice in answer.choices} <= {"stop", "length"}


@streams
def test_every_choice_echoes_the_prompt_and_its_logprobs(roomy: Bench, stream: bool) -> None:
    case = next(case for case in CASES if case.name == "echo of more than characters")
    answer = roomy.ask(case, n=2, stream=stream, logprobs=2)
    right = roomy.right(case, 2)
    assert [choice.text for choice in answer.choices] == [right.only.text] * 2
    assert [choice.logprobs for choice in answer.choices] == [right.only.logprobs] * 2


@streams
def test_every_choice_tells_of_the_prompt(roomy: Bench, stream: bool) -> None:
    one = roomy.ask(SCORED, prompt_logprobs=2).only
    answer = roomy.ask(SCORED, n=3, stream=stream, prompt_logprobs=2)
    assert answer.choices == [one] * 3
    assert answer.prompt_tokens == len(one.prompt_ids or [])


def test_the_best_tells_of_the_prompt_whichever_it_is(roomy: Bench) -> None:
    best = [
        roomy.ask(COIN, best_of=3, **{**SEEDED, "seed": seed}, prompt_logprobs=0).only for seed in range(12)
    ]
    first = [roomy.ask(COIN, **{**SEEDED, "seed": seed}).only for seed in range(12)]
    assert 0 < sum(one.ids == other.ids for one, other in zip(best, first, strict=True)) < 12
    assert [choice.prompt_ids for choice in best] == [roomy.shelf.prompt(COIN)] * 12
    assert all(choice.prompt_logprobs and len(choice.prompt_logprobs) == 3 for choice in best)


@streams
def test_each_choice_stops_for_itself(roomy: Bench, stream: bool) -> None:
    """A stop string, in sampled text: all choices are cut at their own places."""
    free = roomy.ask(DICE, n=6, **SEEDED).choices
    stopped = roomy.ask(DICE, n=6, stop="a", stream=stream, **SEEDED).choices
    for choice, cut in zip(free, stopped, strict=True):
        if "a" in choice.text:
            assert (cut.text, cut.finish, cut.stop) == (choice.text.split("a")[0], "stop", "a")
        else:
            assert (cut.text, cut.finish) == (choice.text, "length")
    assert len({len(cut.text) for cut in stopped}) > 1


def mean(choice: Any) -> float:
    logprobs = choice.logprobs["token_logprobs"]
    return sum(logprobs) / len(logprobs)


def test_the_best_are_those_of_the_highest_mean_logprob(roomy: Bench) -> None:
    every = roomy.ask(COIN, n=6, logprobs=0, **SEEDED)
    best = roomy.ask(COIN, n=2, best_of=6, **SEEDED)
    ranked = sorted(every.choices, key=mean, reverse=True)
    assert [choice.ids for choice in best.choices] == [choice.ids for choice in ranked[:2]]
    assert mean(ranked[1]) - mean(ranked[2]) > 1e-3
    assert all(choice.logprobs is None for choice in best.choices)
    assert best.completion_tokens == every.completion_tokens
    assert best.prompt_tokens == len(roomy.shelf.prompt(COIN))


def ask_several(bench: Bench, prompts: list[Any], stream: bool, **fields: Any) -> Answer:
    body = {"prompt": prompts, "temperature": 0, "return_token_ids": True, **fields}
    if stream:
        return together(bench.asker.chunks(body))
    return whole(bench.asker.post("/v1/completions", body))


@streams
@pytest.mark.parametrize("n", [1, 2])
def test_prompts_of_a_batch_are_answered_in_order(roomy: Bench, stream: bool, n: int) -> None:
    cases = [SHORT, LONG, SCORED]
    answer = ask_several(roomy, [roomy.shelf.prompt(case) for case in cases], stream, n=n, max_tokens=40)
    expected = [case for case in cases for _ in range(n)]
    assert [choice.text for choice in answer.choices] == [case.text[:40] for case in expected]
    assert [choice.finish for choice in answer.choices] == [
        "length" if case is LONG else "stop" for case in expected
    ]
    assert answer.prompt_tokens == sum(len(roomy.shelf.prompt(case)) for case in cases)
    assert answer.completion_tokens == n * (6 + 40 + 3)


@streams
def test_prompts_may_be_texts(roomy: Bench, stream: bool) -> None:
    answer = ask_several(roomy, ["?ab", "?cd"], stream)
    assert [choice.text for choice in answer.choices] == ["Hello", "Hello"]
    assert roomy.asker.ask("?ab", stream=stream).only.prompt_ids == list(b"?ab")
