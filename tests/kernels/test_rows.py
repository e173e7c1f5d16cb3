import math

import numba
import numpy as np
import pytest

from stretto.kernels import rows


@numba.njit
def largest(logits, start, count):
    return rows.largest(logits, start, count)


@numba.njit
def first_equal(logits, start, count, value):
    return rows.first_equal(logits, start, count, value)


@pytest.mark.parametrize("count", [1, 15, 16, 17, 100])
def test_the_largest_of_a_row_ignores_its_neighbours(count):
    logits = np.full(count + 40, np.inf, np.float32)
    logits[20 : 20 + count] = np.random.default_rng(0).standard_normal(count)
    assert largest(logits, 20, count) == logits[20 : 20 + count].max()
    logits[20 + count - 1] = np.nan
    assert math.isnan(largest(logits, 20, count))


def test_a_row_of_minus_infinity_has_that_as_its_largest():
    assert largest(np.full(20, -np.inf, np.float32), 0, 20) == -math.inf


def test_the_first_of_equals_is_found():
    logits = np.array([5, 1, 2, 5, 5], np.float32)
    assert first_equal(logits, 1, 4, np.float32(5)) == 2
    assert first_equal(logits, 1, 2, np.float32(5)) == -1
