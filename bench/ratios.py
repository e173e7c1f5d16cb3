"""How many times as fast one engine is as another, from runs in turn."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Rates = dict[str, list[float]]
"""Output tokens per second of each round, by engine."""


class Ratio(NamedTuple):
    """How many times as fast Stretto is."""

    of_medians: float
    median: float
    """Of the ratios of each round."""


def ratio(own: Sequence[float], other: Sequence[float]) -> Ratio:
    """From the rates of the same rounds."""
    each = [ours / theirs for ours, theirs in zip(own, other, strict=True)]
    return Ratio(statistics.median(own) / statistics.median(other), statistics.median(each))


def ratios(rates: Mapping[str, Rates], own: str) -> dict[str, dict[str, Any]]:
    """Of the engine `own` over all others, by work and engine."""
    return {
        work: {name: ratio(of[own], of[name])._asdict() for name in of if name != own}
        for work, of in rates.items()
    }
