import numba
import numpy as np
import pytest

from stretto.kernels.paged_attention import decode, tile

DEPTH = 64
STRIDE = 80
"""From one query, or one query's sums, to the next."""


@pytest.fixture
def numbers():
    return np.random.default_rng(0)


@pytest.fixture
def cache(numbers):
    return numbers.standard_normal(50 * DEPTH).astype(np.float32)


@pytest.fixture
def tokens(numbers):
    """Where a tile's tokens are in the cache, behind a base of half a token."""
    return numbers.permutation(49)[: tile.TILE] * DEPTH


BASE = DEPTH // 2


@pytest.mark.parametrize("queries", range(1, decode.QUERIES + 1))
def test_scores_have_the_bits_of_those_of_a_copied_tile(queries, numbers, cache, tokens):
    @numba.njit
    def run(x, tokens, out, copied, expected, asked):
        decode.score(shape, x, STRIDE, cache_, tokens, BASE, DEPTH, out, asked, 0)
        tile.dots(x, STRIDE, copied, tile.TILE, DEPTH, expected, tile.TILE, x, cache_, asked, 0)

    shape, cache_ = decode.shape(queries, DEPTH), cache
    x, asked = numbers.random((tile.QUERIES, STRIDE), np.float32), np.zeros(DEPTH, np.int64)
    copied = np.ascontiguousarray(cache[tokens + BASE + np.arange(DEPTH)[:, None]])
    out, expected = np.full((2, tile.QUERIES, tile.TILE), -1, np.float32)
    run(*(array.ctypes.data for array in (x, tokens, out, copied, expected, asked)))
    assert np.array_equal(out[:queries], expected[:queries])
    assert np.all(out[queries:] == -1)


@pytest.mark.parametrize("queries", range(1, decode.QUERIES + 1))
@pytest.mark.parametrize("head_dim", [32, 64])
def test_sums_have_the_bits_of_those_of_a_copied_tile(queries, head_dim, numbers, cache, tokens):
    @numba.njit
    def run(weights, tokens, count, out, copied, expected, decays, asked):
        decode.mix(shape, weights, cache_, tokens, BASE, count, out, STRIDE, decays, asked, 0)
        for column in range(0, columns, tile.TILE):
            values, to = copied + 4 * column, expected + 4 * column
            tile.blend(weights, tile.TILE, values, columns, count, to, STRIDE, decays, cache_, asked, 0)

    shape, cache_ = decode.shape(queries, head_dim), cache
    columns = len(shape[0]) * 16
    weights, decays = numbers.random((tile.QUERIES, tile.TILE), np.float32), numbers.random(8, np.float32)
    copied, asked = cache[tokens[:, None] + BASE + np.arange(columns)], np.zeros(2 * DEPTH, np.int64)
    out = numbers.random((tile.QUERIES, STRIDE), np.float32)
    before, expected = out.copy(), out.copy()
    addresses = (array.ctypes.data for array in (out, copied, expected, decays, asked))
    run(weights.ctypes.data, tokens.ctypes.data, tile.TILE - 3, *addresses)
    assert np.array_equal(out[:queries], expected[:queries])
    assert not np.array_equal(out[:queries, :columns], before[:queries, :columns])
    assert np.array_equal(out[:, columns:], before[:, columns:])
    assert np.array_equal(out[queries:], before[queries:])


def test_there_is_code_for_few_queries_and_whole_panels_of_values():
    assert decode.fits(decode.QUERIES, 64)
    assert decode.fits(1, 96)
    assert not decode.fits(decode.QUERIES + 1, 64)
    assert not decode.fits(1, 80)
