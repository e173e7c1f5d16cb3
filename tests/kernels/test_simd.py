import numba
import numpy as np
import pytest

from stretto.kernels import simd

LANES = np.arange(16)
X = np.random.default_rng(0).standard_normal(16).astype(np.float32)


def apply(function, *vectors):
    """The vector that a function of vectors gives for these arrays."""
    out = np.full(16, np.nan, np.float32)
    names = [f"v{i}" for i in range(len(vectors))]
    loads = ", ".join(f"simd.load({name}, 0)" for name in names)
    scope = {"simd": simd, "function": function}
    exec(f"def run(out, {', '.join(names)}): simd.store(out, 0, function({loads}))", scope)
    numba.njit(scope["run"])(out, *vectors)
    return out


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (simd.add, X + X[::-1]),
        (simd.sub, X - X[::-1]),
        (simd.mul, X * X[::-1]),
        (simd.div, X / X[::-1]),
        (simd.maximum, np.maximum(X, X[::-1])),
        (simd.larger, np.maximum(X, X[::-1])),
    ],
)
def test_arithmetic_is_lane_by_lane(function, expected):
    assert np.array_equal(apply(function, X, np.ascontiguousarray(X[::-1])), expected)


def test_fma_rounds_once():
    a = np.full(16, 1 + 2**-12, np.float32)
    assert np.array_equal(apply(simd.fma, a, a, -a * a), np.full(16, 2**-24, np.float32))


def test_rounding():
    x = np.linspace(-4, 3.5, 16, dtype=np.float32)
    assert np.array_equal(apply(simd.floor, x), np.floor(x))
    assert np.array_equal(apply(simd.round_even, x), np.rint(x))


def test_a_number_comes_apart_and_together():
    x = np.exp(X * 20).astype(np.float32)
    mantissa, exponent = np.frexp(x)
    assert np.array_equal(apply(simd.mantissa, x), mantissa)
    assert np.array_equal(apply(simd.exponent, x), exponent.astype(np.float32))
    powers = np.linspace(-126, 127, 16).round().astype(np.float32)
    assert np.array_equal(apply(simd.power_of_two, powers), np.float32(2) ** powers)


def test_exp_is_within_two_units_in_the_last_place_and_clamped():
    x = np.linspace(-87, 87, 16, dtype=np.float32)
    assert np.allclose(apply(simd.exp, x), np.exp(x.astype(np.float64)), rtol=2.4e-7, atol=0)
    ends = np.tile(np.array([-np.inf, -1e30, 0, np.inf], np.float32), 4)
    low, same, one, high = apply(simd.exp, ends)[:4]
    assert 0 < low == same < 2e-38
    assert one == 1
    assert 1e38 < high < np.inf


def test_exp2_below_is_within_two_units_in_the_last_place_and_ends_in_zero():
    x = np.linspace(-125.9, 0, 16, dtype=np.float32)
    assert np.allclose(apply(simd.exp2_below, x), np.exp2(x.astype(np.float64)), rtol=2.4e-7, atol=0)
    ends = np.resize(np.float32([0, -1, -126, -127, -1e38, -np.inf, np.nan]), 16)
    expected = np.float32([1, 0.5, 2.0**-126, 0, 0, 0, np.nan])
    assert np.array_equal(apply(simd.exp2_below, ends)[:7], expected, equal_nan=True)


def test_exp_of_nan_is_nan():
    assert np.isnan(apply(simd.exp, np.full(16, np.nan, np.float32))).all()


@pytest.mark.parametrize("count", [0, 1, 15, 16])
def test_partial_loads_and_stores_touch_nothing_else(count):
    @numba.njit
    def run(source, out, count):
        simd.store(out, 0, simd.load_first(source, 3, count))
        simd.store_first(out, 20, simd.load(source, 0), count)

    source, out = np.arange(40, dtype=np.float32), np.full(40, np.nan, np.float32)
    run(source, out, count)
    assert np.array_equal(out[:16], np.where(count > LANES, source[3:19], 0))
    assert np.array_equal(out[20 : 20 + count], source[:count])
    assert np.isnan(out[20 + count :]).all()


def test_reductions():
    @numba.njit
    def run(x):
        return simd.sum_lanes(simd.load(x, 0)), simd.max_lanes(simd.load(x, 0))

    total, largest = run(X)
    halves = X
    while len(halves) > 1:
        halves = halves[: len(halves) // 2] + halves[len(halves) // 2 :]
    assert (total, largest) == (halves[0], X.max())
    poisoned = X.copy()
    poisoned[5] = np.nan
    assert np.isnan(run(poisoned)[1])


def test_selection():
    @numba.njit
    def run(x, out):
        simd.store(out, 0, simd.keep_first(simd.load(x, 0), 5, simd.splat(np.float32(9))))
        zero = simd.splat(np.float32(0))
        simd.store(out, 16, simd.where_less(simd.load(x, 0), zero, zero, simd.load(x, 0)))

    out = np.empty(32, np.float32)
    run(X, out)
    assert np.array_equal(out[:16], np.where(LANES < 5, X, 9))
    assert np.array_equal(out[16:], np.maximum(X, 0))


@pytest.mark.parametrize(("begin", "end"), [(0, 16), (3, 9), (-7, 2), (5, 40), (20, 30), (9, 9)])
def test_lanes_of_a_range_are_kept(begin, end):
    @numba.njit
    def run(x, out, begin, end):
        simd.store(out, 0, simd.keep_between(simd.load(x, 0), begin, end, simd.splat(np.float32(9))))

    out = np.empty(16, np.float32)
    run(X, out, begin, end)
    assert np.array_equal(out, np.where((begin <= LANES) & (end > LANES), X, 9))


def test_an_address_does_for_an_array():
    @numba.njit
    def run(x, out):
        simd.store(out, 1, simd.add(simd.load(x, 2), simd.spread(x, 3)))

    x, out = np.arange(20, dtype=np.float32), np.zeros(18, np.float32)
    run(x.ctypes.data, out.ctypes.data)
    assert np.array_equal(out, [0, *(x[2:18] + 3), 0])


def test_a_block_is_turned():
    @numba.njit
    def run(x, rows, out):
        simd.load_columns(x, rows, 2, out, 16, 16)

    x, rows = np.arange(600, dtype=np.float32), np.random.default_rng(0).permutation(580)[:16]
    out = np.full(16 * 17, np.nan, np.float32)
    run(x, rows, out)
    assert np.array_equal(out[16:].reshape(16, 16), x[rows[None, :] + 2 + LANES[:, None]])
    assert np.isnan(out[:16]).all()
