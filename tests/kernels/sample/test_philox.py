import numba
import numpy as np
import pytest
import torch

from stretto.kernels import simd
from stretto.kernels.sample.philox import philox, unsigned
from stretto.kernels.sample.reference import philox as reference


@numba.njit
def words(first, position, seed, out):
    philox(first, position, seed, out)


@pytest.mark.parametrize(
    ("first", "position", "seed"), [(0, 0, 0), (16, 1, 2), (5, 2**40 + 3, -1), (0, -1, 2**63 - 1)]
)
def test_the_words_are_the_references_in_token_order(first, position, seed):
    out = np.empty(64, np.int32)
    words(first, position, seed, out)
    mask = 0xFFFFFFFF
    counter = torch.tensor([[first + i, 0, position & mask, position >> 32 & mask] for i in range(16)])
    expected = reference(counter, (seed & mask, seed >> 32 & mask)).flatten().tolist()
    assert out.view(np.uint32).tolist() == expected


def test_words_are_unsigned():
    @numba.njit
    def run(words, out):
        simd.store(out, 0, unsigned(words, 0))

    bits, out = np.linspace(0, 2**32 - 1, 16).astype(np.uint32), np.empty(16, np.float32)
    run(bits.view(np.int32), out)
    assert np.array_equal(out, bits.astype(np.float32))
