import numba
import numpy as np
import pytest

from stretto.kernels import simd
from stretto.kernels.paged_attention import tile

DEPTH, WIDE = 20, 40


@pytest.fixture
def numbers():
    return np.random.default_rng(0)


def product(function, x, weights, out, decays):
    """Call one of the two, which asks the caches for what is here already."""

    @numba.njit
    def run(x, weights, out, decays, cache, asked):
        function(x, DEPTH, weights, WIDE, DEPTH, out, WIDE, decays, cache, asked, 0)

    cache, asked = np.zeros(64, np.float32), np.zeros(DEPTH, np.int64)
    addresses = (array.ctypes.data for array in (x, weights, out, decays))
    run(*addresses, cache, asked.ctypes.data)


def test_the_products_of_as_many_queries_as_there_is_code_for(numbers):
    x, weights = numbers.random((tile.QUERIES, DEPTH), np.float32), numbers.random((DEPTH, WIDE), np.float32)
    decays, before = (
        numbers.random(tile.QUERIES, np.float32),
        numbers.random((tile.QUERIES, WIDE), np.float32),
    )
    scores, sums = before.copy(), before.copy()
    product(tile.dots, x, weights, scores, decays)
    product(tile.blend, x, weights, sums, decays)
    expected = x @ weights
    assert np.allclose(scores[:, : tile.TILE], expected[:, : tile.TILE], rtol=1e-6)
    joined = expected + before * decays[:, None]
    assert np.allclose(sums[:, : tile.TILE], joined[:, : tile.TILE], rtol=1e-6)
    assert np.array_equal(scores[:, tile.TILE :], before[:, tile.TILE :])
    assert np.array_equal(sums[:, tile.TILE :], before[:, tile.TILE :])


def test_the_largest_score_of_each_row(numbers):
    @numba.njit
    def run(scores, out):
        simd.store(out, 0, tile.row_maxima(scores))

    scores, out = numbers.standard_normal((tile.ROWS, tile.TILE)).astype(np.float32), np.empty(16, np.float32)
    run(scores.ctypes.data, out)
    assert np.array_equal(out[: tile.ROWS], scores.max(axis=1))
