"""How many sequences a job has, and where their texts go."""

from __future__ import annotations

from typing import Any

import pytest

from stretto.roles.gateway.job import Job
from stretto.roles.messages import SamplingParams


def job(prompts: int = 1, **params: Any) -> Job:
    return Job(params=SamplingParams(**params), prompts=("Hi",) * prompts)


@pytest.mark.parametrize(
    ("made", "width", "choices", "positions", "picks"),
    [
        (job(), 1, 1, [0], False),
        (Job(params=SamplingParams(n=2), messages=[]), 2, 2, [0, 1], False),
        (job(n=3), 3, 3, [0, 1, 2], False),
        (job(2, n=2, best_of=3), 3, 4, [0, 1, 2, 3, 4, 5], True),
        (job(2, n=2, best_of=2), 2, 4, [0, 1, 2, 3], False),
        (job(2, n=2, best_of=4, use_beam_search=True), 4, 4, [0, 1, 4, 5], False),
    ],
)
def test_sequences_and_choices(
    made: Job, width: int, choices: int, positions: list[int], picks: bool
) -> None:
    assert (made.width, made.choices, made.positions, made.picks) == (width, choices, positions, picks)


def test_positions_become_choices_prompt_by_prompt() -> None:
    beams = job(2, n=2, best_of=4, use_beam_search=True)
    assert [beams.index(position) for position in beams.positions] == [0, 1, 2, 3]
