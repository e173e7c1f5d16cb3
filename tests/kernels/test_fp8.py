"""Numbers of eight bits, against torch's; reached as kernels reach them, through `simd`."""

import numba
import numpy as np
import pytest
import torch

from stretto.kernels import simd

CODES = torch.arange(256, dtype=torch.uint8)


@numba.njit
def widen(out, codes):
    for at in range(0, len(codes), 16):
        simd.store(out, at, simd.load_first(codes, at, 16))


@numba.njit
def narrow(out, numbers):
    for at in range(0, len(numbers), 16):
        simd.store_first(out, at, simd.load(numbers, at), 16)


def test_every_number_is_widened_exactly():
    out = np.full(256, np.inf, np.float32)
    widen(out, CODES.numpy())
    expected = CODES.view(torch.float8_e4m3fn).float().numpy()
    assert np.array_equal(out, expected, equal_nan=True)
    assert np.array_equal(np.signbit(out)[[0, 128]], [False, True])


def test_numbers_are_rounded_as_torch_rounds_them():
    """All that there are, what lies half-way between two, its neighbours on both sides, and random ones."""
    numbers = CODES[:127].view(torch.float8_e4m3fn).float()
    halves = (numbers[1:] + numbers[:-1]) / 2
    up, down = (torch.nextafter(halves, torch.full_like(halves, end)) for end in (1e9, -1e9))
    x = torch.cat([numbers, halves, up, down, torch.randn(1000).exp(), 1e-3 * torch.randn(1000)])
    x = torch.cat([x, -x])[: len(x) // 8 * 16].clamp(-448, 448).contiguous()
    out = np.zeros(len(x), np.uint8)
    narrow(out, x.numpy())
    assert np.array_equal(out, x.to(torch.float8_e4m3fn).view(torch.uint8).numpy())


@pytest.mark.parametrize(("number", "code"), [(448.0, 126), (449.0, 126), (1e38, 126), (float("inf"), 126)])
def test_what_is_too_large_is_the_largest(number, code):
    out, signs = np.zeros(16, np.uint8), np.tile(np.array([1, -1], np.float32), 8)
    narrow(out, signs * np.float32(number))
    assert out[:2].tolist() == [code, code + 128]


def test_a_nan_stays_one():
    out, back = np.zeros(16, np.uint8), np.zeros(16, np.float32)
    narrow(out, np.full(16, np.nan, np.float32))
    widen(back, out)
    assert np.isnan(back).all()


@pytest.mark.parametrize("count", [0, 1, 9, 16])
def test_lanes_past_the_first_are_left_alone(count):
    @numba.njit
    def copy(out, codes, count):
        simd.store_first(out, 0, simd.load_first(codes, 0, count), count)

    out = np.full(16, 99, np.uint8)
    copy(out, CODES[:16].numpy(), count)
    assert out.tolist() == [*range(count), *[99] * (16 - count)]


def test_columns_are_turned():
    @numba.njit
    def turn(codes, rows, out):
        simd.load_columns(codes, rows, 2, out, 0, 16)

    codes, rows = np.arange(120, dtype=np.uint8), 3 * np.arange(16, dtype=np.int64)
    out = np.zeros(256, np.float32)
    turn(codes, rows, out)
    numbers = CODES.view(torch.float8_e4m3fn).float().numpy()
    assert np.array_equal(out.reshape(16, 16).T, numbers[rows[:, None] + 2 + np.arange(16)])
