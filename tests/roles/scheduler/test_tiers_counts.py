from __future__ import annotations

from stretto.roles.metrics import METRICS
from stretto.roles.scheduler.tiers_counts import TierCounts


def test_counts_that_are_not_zero_go_under_the_names_of_metrics() -> None:
    assert TierCounts().by_metric() == []
    assert TierCounts(swapped_pages=2, promoted_pages=3).by_metric() == [
        ("swapped_pages_total", 2),
        ("promoted_pages_total", 3),
    ]
    known = {metric.name for metric in METRICS["scheduler"]}
    assert {f"{name}_total" for name in TierCounts.__slots__} <= known
