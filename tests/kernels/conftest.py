"""What the kernel tests share: one tolerance table, a cache of compiled kernels, and Triton's interpreter."""

import os
from collections.abc import Callable
from pathlib import Path

from stretto.kernels import cache

if "NUMBA_CACHE_DIR" not in os.environ:
    cache.use(str(Path(__file__).parents[2] / ".cache"))

import interpreting
import pytest
import torch

interpreting.interpret()

TOLERANCE = {
    torch.float32: {"rtol": 2e-6, "atol": 2e-6},
    torch.bfloat16: {"rtol": 8e-3, "atol": 8e-3},
    torch.float16: {"rtol": 1e-3, "atol": 1e-3},
}
"""A few roundings of the type, for values of the order of 1."""


@pytest.fixture
def assert_close() -> Callable[[torch.Tensor, torch.Tensor], None]:
    """Equal within the tolerance of the tensors' type; a NaN equals nothing."""

    def check(actual: torch.Tensor, expected: torch.Tensor) -> None:
        torch.testing.assert_close(actual, expected, **TOLERANCE[actual.dtype])

    return check


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def nan() -> Callable[..., torch.Tensor]:
    """A tensor of that shape, full of NaN: whatever a kernel leaves out shows."""
    return lambda *shape: torch.full(shape, float("nan"))
