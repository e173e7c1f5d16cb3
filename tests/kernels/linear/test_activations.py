import functools

import numba
import numpy as np
import pytest
import torch

from stretto.kernels.dot import row_bytes
from stretto.kernels.linear import quantized
from stretto.kernels.linear.activations import make_round
from stretto.kernels.pool import floats

BITS, GROUPS = (8, 4), (64, 32)


@functools.cache
def compiled(bits: int, group: int):
    round_row = make_round(bits, group)
    return numba.njit(lambda x, depth, to: round_row(floats(x), 0, depth, to))


def rounded(x: torch.Tensor, bits: int, group: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bytes [groups, group], scales [groups] and factors [groups] of a row."""
    row = np.full((-(-len(x) // group), row_bytes(group)), 77, np.uint8)
    compiled(bits, group)(x.data_ptr(), len(x), row.ctypes.data)
    scales, factors = (np.ascontiguousarray(row[:, at : at + 4]) for at in (group, group + 4))
    kind = np.int32 if bits == 8 else np.float32
    return row[:, :group].view(np.int8), scales.view(np.float32)[:, 0], factors.view(kind)[:, 0]


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("depth", [1, 15, 64, 100, 576])
def test_rounds_as_the_reference_does(depth, group):
    x = torch.randn(depth)
    x[::3] = (x[::3] * 8).round() / 16
    values, scales, _ = rounded(x, 8, group)
    product = torch.tensor(scales[:, None] * values.astype(np.float32)).flatten()
    assert torch.equal(product[:depth], quantized.round_rows(x[None], group)[0])
    assert not product[depth:].any()


def test_halves_go_to_the_even_number():
    x = torch.tensor([127.0, 0.5, 1.5, -0.5, -1.5, 2.5])
    assert rounded(x, 8, 32)[0][0, :6].tolist() == [127, 0, 2, 0, -2, 2]


@pytest.mark.parametrize("bits", BITS)
def test_factors_are_sums_of_bytes(bits):
    values, _, factors = rounded(torch.randn(200), bits, 64)
    assert factors.tolist() == (values.sum(1, dtype=np.int32) * (-128 if bits == 8 else 1)).tolist()


@pytest.mark.parametrize("value", [0.0, 1e-38, -1e-44])
def test_what_is_too_small_for_a_scale_becomes_nothing(value):
    values, _, factors = rounded(torch.full((64,), value), 8, 64)
    assert not values.any()
    assert not factors.any()


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_a_group_with_what_is_no_number_has_no_scale(value):
    x = torch.ones(192)
    x[70] = value
    assert np.isnan(rounded(x, 8, 64)[1]).tolist() == [False, True, False]
