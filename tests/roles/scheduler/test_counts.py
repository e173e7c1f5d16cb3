"""Counts and the metrics they become."""

from __future__ import annotations

from stretto.roles.scheduler.counts import Counts


def test_only_what_happened_is_told() -> None:
    assert Counts().by_metric() == []
    assert Counts(prompt_tokens=3, retractions=1).by_metric() == [
        ("prompt_tokens_total", 3),
        ("retractions_total", 1),
    ]
