"""The experiments on KV memory, at small sizes."""

from __future__ import annotations

import numpy as np
import pytest

from stretto.bench import caching
from stretto.bench.caching import Asked


def test_the_optimum_counts_each_token_that_another_prompt_begins_with() -> None:
    prompts = ([1, 2, 3, 4], [1, 2, 5, 6], [7, 8, 9, 10])
    assert caching.optimum([Asked(np.array(prompt), 1) for prompt in prompts]) == 2 / 12


def test_the_prefix_policy_computes_every_token_once_in_a_cache_as_small_as_the_longest_request() -> None:
    stream = caching.few_shot(4, 4, seed=0)
    pool = caching.longest(stream)
    best = caching.optimum(stream)
    assert caching.hit_rate(stream, "prefix", pool, page=1) == pytest.approx(best, abs=1e-12)
    assert caching.hit_rate(stream, "fcfs", pool, page=1) < 0.5 * best


@pytest.mark.parametrize("bound", [0, 8, 32])
def test_nobody_is_overtaken_beyond_the_bound_by_an_adversary(bound: int) -> None:
    assert caching.most_overtaken(bound, hot=160) == bound


def test_pages_hold_more_tokens_than_stretches() -> None:
    stream = caching.sharegpt_like(60, seed=1)
    paged = caching.paged(stream, 4000)["of what is reserved"]
    by_maximum, by_power = (
        caching.contiguous(stream, 4000, by)["of what is reserved"] for by in ("maximum", "power of two")
    )
    assert paged > 0.96 > by_power > by_maximum


def test_a_stretch_is_reserved_for_the_next_power_of_two_until_its_request_ends() -> None:
    stream = [Asked(np.zeros(6, int), 3), Asked(np.zeros(6, int), 2)]
    shares = caching.contiguous(stream, 20, "power of two")  # 16 and 8 do not fit together
    assert shares["of what is reserved"] == (6 + 7 + 8) / (3 * 16)
    assert shares["of the pool, running"] == 7 / 20
    assert shares["sequences at once"] == 1.0
