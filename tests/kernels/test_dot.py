import functools
from typing import NamedTuple

import llvmlite.binding
import numba
import numpy as np
import pytest

from stretto.kernels.dot import WAYS, block_bytes, head_bytes, make_dot, make_unpack, row_bytes

GROUPS, GROUP, COLUMNS, ROWS = 3, 32, 16, 2
ROW_BYTES, OUT_BYTES = GROUPS * row_bytes(GROUP), 4 * COLUMNS
features = llvmlite.binding.get_host_cpu_features()
WAYS_HERE = [way for way in WAYS if not way or features.get(way)]
each_bits = pytest.mark.parametrize("bits", [8, 4])


@functools.cache
def compiled(way: str, bits: int, ahead: int | None = 0, unpacked: bool = False):
    dot = make_dot(ROWS, 1, bits, GROUP, ahead, unpacked, way)
    return numba.njit(
        lambda rows, x, weights, groups, onto, out: dot(
            rows, x, ROW_BYTES, weights, groups, onto, out, OUT_BYTES, weights
        )
    )


class Case(NamedTuple):
    """Rows and weights as `make_dot` takes them, and their product."""

    x: np.ndarray
    weights: np.ndarray
    product: np.ndarray

    def run(self, rows: int, dot) -> np.ndarray:
        out = np.full((ROWS, COLUMNS), np.nan, np.float32)
        dot(rows, self.x.ctypes.data, self.weights.ctypes.data, GROUPS, False, out.ctypes.data)
        assert np.isnan(out[rows:]).all()
        return out[:rows]


def case(bits: int) -> Case:
    """Random bytes, the largest and the smallest among them."""
    random = np.random.default_rng(0)
    values = random.choice(np.array([-127, -3, 0, 5, 127], np.int8), (ROWS, GROUPS, GROUP))
    scales = random.random((ROWS, GROUPS), np.float32)
    sums = values.sum(-1, dtype=np.int32)
    factors = -128 * sums if bits == 8 else sums.astype(np.float32)
    tables = (table.reshape(ROWS, GROUPS, 1).view(np.uint8) for table in (scales, factors))
    x = np.concatenate([values.view(np.uint8), *tables], axis=2)
    heads = random.random((GROUPS, 8 // bits, COLUMNS)).astype(np.float16)
    stored = random.integers(0, 256, (GROUPS, GROUP * bits // 32, COLUMNS, 4)).astype(np.uint8)
    weights = np.concatenate([heads.reshape(GROUPS, -1).view(np.uint8), stored.reshape(GROUPS, -1)], axis=1)
    if bits == 8:
        offset, steps = -128.0 * heads[:, 0], stored
    else:
        offset, steps = heads[:, 1], np.stack([stored & 15, stored >> 4], 2).reshape(GROUPS, -1, COLUMNS, 4)
    steps = steps.transpose(0, 1, 3, 2).reshape(GROUPS, GROUP, COLUMNS)
    matrix = heads[:, :1].astype(float) * steps + offset[:, None].astype(float)
    product = np.einsum("rgk,gkc,rg->rc", values.astype(float), matrix, scales.astype(float))
    assert weights.shape[1] == block_bytes(COLUMNS, bits, GROUP)
    return Case(x, weights, product)


@each_bits
def test_equals_the_exact_product(bits):
    data = case(bits)
    product = data.run(ROWS, compiled(WAYS_HERE[0], bits))
    np.testing.assert_allclose(product, data.product, rtol=1e-5, atol=1e-2)


@each_bits
def test_every_way_gives_the_same_bits_for_any_number_of_rows(bits):
    data = case(bits)
    expected = data.run(ROWS, compiled("", bits))
    for way in WAYS_HERE:
        np.testing.assert_array_equal(data.run(ROWS, compiled(way, bits)), expected)
        np.testing.assert_array_equal(data.run(1, compiled(way, bits)), expected[:1])


@each_bits
def test_a_product_may_be_made_in_parts(bits):
    data, dot = case(bits), compiled(WAYS_HERE[0], bits, ahead=None)
    out = np.full((ROWS, COLUMNS), np.nan, np.float32)
    x, weights, to = data.x.ctypes.data, data.weights.ctypes.data, out.ctypes.data
    dot(ROWS, x, weights, 1, False, to)
    dot(ROWS, x + row_bytes(GROUP), weights + block_bytes(COLUMNS, bits, GROUP), GROUPS - 1, True, to)
    np.testing.assert_array_equal(out, data.run(ROWS, compiled(WAYS_HERE[0], bits)))


def test_unpacked_nibbles_give_the_same_bits():
    data, unpack = case(4), make_unpack(1, GROUP, 0)
    weights = np.zeros((GROUPS, block_bytes(COLUMNS, 4, GROUP, unpacked=True)), np.uint8)
    numba.njit(lambda stored, out: unpack(stored, GROUPS, out))(data.weights.ctypes.data, weights.ctypes.data)
    head = head_bytes(COLUMNS, 4)
    np.testing.assert_array_equal(weights[:, :head], data.weights[:, :head])
    expected = data.run(ROWS, compiled(WAYS_HERE[0], 4))
    wide = data._replace(weights=weights)
    np.testing.assert_array_equal(wide.run(ROWS, compiled(WAYS_HERE[0], 4, unpacked=True)), expected)
