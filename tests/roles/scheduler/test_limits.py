"""What fits and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stretto.roles.scheduler.limits import Limits, chunk_budget, pages_for

LIMITS = Limits(pages=4, page_size=4, max_seqs=2, max_batched_tokens=8, max_model_len=100)


@pytest.mark.parametrize(("tokens", "pages"), [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2)])
def test_pages_for(tokens: int, pages: int) -> None:
    assert pages_for(tokens, 4) == pages


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "code"),
    [
        (15, 1, None),
        (15, None, None),
        (15, 2, "kv_pool_exceeded"),
        (16, None, "kv_pool_exceeded"),
        (100, None, "context_length_exceeded"),
        (1, 100, "context_length_exceeded"),
    ],
)
def test_refusal(prompt: int, max_tokens: int | None, code: str | None) -> None:
    fault = LIMITS.refusal(prompt, max_tokens)
    assert (fault.code if fault else None) == code


def test_a_refusal_names_both_numbers_and_what_to_do() -> None:
    fault = LIMITS.refusal(15, 2)
    assert fault is not None
    assert fault.status == 400
    assert fault.message == (
        "A prompt of 15 tokens and max_tokens=2 need 5 KV pages, but the pool has 4 (4 tokens each): shorten "
        "the prompt, lower max_tokens, or start the server with more --kv-memory."
    )


def test_the_end_of_a_request() -> None:
    assert LIMITS.end_of(5, 3) == 8
    assert LIMITS.end_of(5, None) == 16


def test_a_step_is_as_long_as_it_may_take_within_bounds() -> None:
    assert chunk_budget(40_000.0, 0.1, max_seqs=64) == 4000
    assert chunk_budget(800.0, 0.1, max_seqs=64) == 128
    assert chunk_budget(0.0, 0.1, max_seqs=4) == 128
    assert chunk_budget(1e9, 0.1, max_seqs=64) == 8192
    assert chunk_budget(800.0, 0.1, max_seqs=300) == 600


def test_windows_let_a_small_pool_hold_a_long_sequence() -> None:
    """A window of 4: at most (4 + 2 * 8 tokens in flight + 4 of slack) / 4 + 1 = 7 pages."""
    sliding = replace(LIMITS, pages=7, windows=(4,))
    assert (sliding.pages_of(4), sliding.pages_of(99), sliding.longest) == (1, 7, 100)
    assert sliding.refusal(99, 1) is None
    assert replace(sliding, pages=6).longest == 24


def test_a_full_group_beside_a_window_needs_pages_for_every_token() -> None:
    mixed = replace(LIMITS, pages=20, windows=(0, 4))
    assert (mixed.pages_of(16), mixed.pages_of(80), mixed.longest) == (8, 27, 52)
    fault = mixed.refusal(60, 1)
    assert fault is not None
    assert "need 23 KV pages, but the pool has 20" in fault.message
