import functools
from typing import NamedTuple

import llvmlite.binding
import numba
import numpy as np
import pytest

from stretto.kernels.dot import WAYS, block_bytes, make_dot

GROUPS, GROUP, COLUMNS, ROWS = 3, 32, 16, 2
ROW_BYTES = GROUPS * (GROUP + 8)
features = llvmlite.binding.get_host_cpu_features()
WAYS_HERE = [way for way in WAYS if not way or features.get(way)]


@functools.cache
def compiled(way: str, bits: int):
    dot = make_dot(ROWS, 1, bits, GROUP, 0, way)
    return numba.njit(lambda rows, x, weights, out: dot(rows, x, ROW_BYTES, weights, GROUPS, out))


class Case(NamedTuple):
    """Rows and weights as `make_dot` takes them, and their product."""

    x: np.ndarray
    weights: np.ndarray
    product: np.ndarray

    def run(self, way: str, bits: int, rows: int) -> np.ndarray:
        out = np.full((ROWS, COLUMNS), np.nan, np.float32)
        compiled(way, bits)(rows, self.x.ctypes.data, self.weights.ctypes.data, out.reshape(-1))
        return out[:rows]


def case(bits: int) -> Case:
    """Random bytes, the largest and the smallest among them."""
    random, tables = np.random.default_rng(0), 8 // bits
    values = random.choice(np.array([-127, -3, 0, 5, 127], np.int8), (ROWS, GROUPS, GROUP))
    scales = random.random((ROWS, GROUPS), np.float32)
    sums = values.sum(-1, dtype=np.int32)
    x = np.concatenate([part.reshape(ROWS, -1).view(np.uint8) for part in (values, scales, sums)], axis=1)
    heads = random.random((GROUPS, tables, COLUMNS)).astype(np.float16)
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


@pytest.mark.parametrize("bits", [8, 4])
def test_equals_the_exact_product(bits):
    data = case(bits)
    np.testing.assert_allclose(data.run(WAYS_HERE[0], bits, ROWS), data.product, rtol=1e-5, atol=1e-2)


@pytest.mark.parametrize("bits", [8, 4])
def test_every_way_gives_the_same_bits_for_any_number_of_rows(bits):
    data = case(bits)
    expected = data.run("", bits, ROWS)
    for way in WAYS_HERE:
        np.testing.assert_array_equal(data.run(way, bits, ROWS), expected)
        np.testing.assert_array_equal(data.run(way, bits, 1), expected[:1])
