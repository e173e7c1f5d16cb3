"""The speed of an answer, on a clock of our own."""

from __future__ import annotations

import pytest

from stretto.roles.client.frames import Completion, Usage
from stretto.roles.client.stopwatch import Stopwatch
from stretto.roles.messages import FinishReason


def completion(tokens: int, reason: FinishReason = "stop") -> Completion:
    return Completion("", [], reason, None, Usage(completion_tokens=tokens), [])


@pytest.mark.parametrize(
    ("tokens", "reason", "report"),
    [
        (11, "stop", "11 tokens · 20.0 tok/s · first after 0.25 s"),
        (1, "stop", "1 token · first after 0.25 s"),
        (11, "length", "11 tokens · 20.0 tok/s · first after 0.25 s · cut at the length limit"),
        (11, "abort", "11 tokens · 20.0 tok/s · first after 0.25 s · stopped"),
    ],
)
def test_the_rate_counts_from_the_first_text(tokens: int, reason: FinishReason, report: str) -> None:
    times = iter([100.0, 100.25, 100.75])
    watch = Stopwatch(lambda: next(times))
    watch.tick()
    assert watch.report(completion(tokens, reason)) == report


def test_an_answer_without_text_has_no_rate() -> None:
    assert Stopwatch().report(completion(0)) == "0 tokens"
