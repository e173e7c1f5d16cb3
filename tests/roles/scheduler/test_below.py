from __future__ import annotations

import math

import pytest

from stretto.roles import messages as m
from stretto.roles.scheduler.below import NOTHING_BELOW, Below, below_of


def test_rates_become_seconds_per_page() -> None:
    hello = m.Hello(8, host_pages=64, disk=True, copy_rate=1000.0, prefill_rate=320.0)
    assert below_of(hello, 16, "back") == Below(64, True, "back", 0.001, 0.05)


def test_what_is_not_known_speaks_for_the_copy() -> None:
    below = below_of(m.Hello(8, host_pages=64), 16, "through")
    assert (below.copy_seconds, below.compute_seconds) == (0.0, math.inf)
    assert below.copy_pays
    assert below_of(m.Hello(8), 16, "through") == NOTHING_BELOW


@pytest.mark.parametrize(("copy", "pays"), [(0.5, True), (1.0, False), (2.0, False)])
def test_a_copy_pays_where_it_is_faster_than_computing(copy: float, pays: bool) -> None:
    assert Below(1, copy_seconds=copy, compute_seconds=1.0).copy_pays is pays
