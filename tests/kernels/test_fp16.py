"""Numbers of sixteen bits, against torch's; reached as kernels reach them, through `simd`."""

import numba
import numpy as np
import pytest
import torch

from stretto.kernels import simd

WORDS = np.arange(1 << 16, dtype=np.uint16)


@numba.njit
def widen(out, words):
    for at in range(0, len(words), 16):
        simd.store(out, at, simd.load_first(words, at, 16))


@numba.njit
def narrow(out, numbers):
    for at in range(0, len(numbers), 16):
        simd.store_first(out, at, simd.load(numbers, at), 16)


def test_every_number_is_widened_exactly():
    out = np.zeros(1 << 16, np.float32)
    widen(out, WORDS)
    expected = WORDS.view(np.float16).astype(np.float32)
    assert np.array_equal(out, expected, equal_nan=True)
    assert np.array_equal(np.signbit(out), np.signbit(expected))


def test_numbers_are_rounded_to_nearest_and_halves_to_even():
    """All that there are, what lies half-way between two, and its neighbours on both sides."""
    numbers = torch.from_numpy(WORDS[:0x7C00].view(np.float16).astype(np.float32))
    halves = (numbers[1:] + numbers[:-1]) / 2
    up, down = (torch.nextafter(halves, torch.full_like(halves, end)) for end in (1e9, -1e9))
    x = torch.cat([numbers, halves, up, down])
    x = torch.cat([x, -x])[: len(x) // 8 * 16].contiguous()
    out = np.zeros(len(x), np.uint16)
    narrow(out, x.numpy())
    assert np.array_equal(out, x.half().numpy().view(np.uint16))


@pytest.mark.parametrize("number", [65504.0, 65519.0, 65520.0, 1e38, float("inf")])
def test_what_is_too_large_is_the_largest(number):
    out, signs = np.zeros(16, np.uint16), np.tile(np.array([1, -1], np.float32), 8)
    narrow(out, signs * np.float32(number))
    assert out.view(np.float16)[:2].tolist() == [65504.0, -65504.0]


def test_a_nan_stays_one():
    out = np.zeros(16, np.uint16)
    narrow(out, np.full(16, np.nan, np.float32))
    assert np.isnan(out.view(np.float16)).all()
