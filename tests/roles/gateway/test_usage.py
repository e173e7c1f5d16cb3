"""Counts over sequences, and the best of them."""

from __future__ import annotations

from typing import Any

from stretto.roles.gateway.job import Job
from stretto.roles.gateway.usage import Tally, choices, total, usage_object
from stretto.roles.messages import Event, SamplingParams, Usage
from stretto.tests.roles.gateway.house import ids


def job(prompts: int = 1, **params: Any) -> Job:
    return Job(params=SamplingParams(**params), prompts=("Hi",) * prompts)


def end(usage: Usage, logprob: float = 0.0, tokens: int = 0) -> Event:
    return Event(1, 0, str(logprob), ids(*range(tokens)), "stop", usage=usage, cumulative_logprob=logprob)


def test_each_prompt_counts_once_with_what_its_first_sequence_found() -> None:
    ends = {
        0: end(Usage(5, 2, 3)),
        1: end(Usage(5, 4, 4)),
        2: end(Usage(7, 1, 0)),
        3: end(Usage(7, 1, 6)),
    }
    assert total(job(2, n=2), ends) == Usage(12, 8, 3)


def test_a_prompt_is_known_by_any_sequence_until_the_first_speaks() -> None:
    tally = Tally(job(n=2))
    tally.add(1, end(Usage(5, 2, 4)))
    assert tally.usage() == Usage(5, 2, 4)
    tally.add(0, end(Usage(5, 1, 3)))
    assert tally.usage() == Usage(5, 3, 3)


def test_tokens_count_as_they_come_and_repeated_ones_once() -> None:
    tally = Tally(job())
    for event in [Event(1, 0, "a", ids(1, 2)), Event(1, 2, "b", ids(3)), Event(1, 2, "b", ids(3))]:
        tally.add(0, event)
    assert tally.usage() == Usage(0, 3)


def test_an_early_usage_tells_of_the_prompt_only() -> None:
    tally = Tally(job())
    tally.add(0, Event(1, 0, "a", ids(1, 2), usage=Usage(5, 0, 3)))
    assert tally.usage() == Usage(5, 2, 3)


def test_nothing_is_known_before_every_prompt_is() -> None:
    tally = Tally(job(2, n=2))
    tally.add(1, Event(1, 0, "a", ids(1), usage=Usage(5, 0, 3)))
    assert tally.known() is None
    tally.add(2, Event(1, 0, "a", ids(1), usage=Usage(5, 0, 3)))
    assert tally.known() == Usage(10, 2, 6)


def test_the_best_are_those_of_the_highest_mean() -> None:
    usage = Usage(1, 1)
    ends = {
        0: end(usage, -4.0, 4),
        1: end(usage, -3.0, 2),
        2: end(usage, -1.0, 2),
        3: end(usage, -2.0, 4),
        4: end(usage, -5.0, 1),
        5: end(usage, -6.0, 2),
        6: end(usage, -7.0, 1),
        7: end(usage, -8.0, 1),
    }
    best = choices(job(2, n=2, best_of=4), ends)
    assert [event.cumulative_logprob for event in best] == [-1.0, -2.0, -6.0, -5.0]


def test_where_nothing_is_picked_the_choices_are_the_sequences() -> None:
    usage = Usage(1, 1)
    ends = {1: end(usage, -1.0), 0: end(usage, -2.0)}
    assert [event.cumulative_logprob for event in choices(job(n=2), ends)] == [-2.0, -1.0]


def test_usage_is_openais_object() -> None:
    assert usage_object(None) is None
    assert usage_object(Usage(5, 2, 3)) == {
        "prompt_tokens": 5,
        "completion_tokens": 2,
        "total_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 3},
    }
