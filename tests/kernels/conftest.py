"""What the kernel tests share: one tolerance table, a cache of compiled kernels, and Triton's interpreter."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stretto.kernels import cache

if "NUMBA_CACHE_DIR" not in os.environ:
    cache.use(str(Path(__file__).parents[2] / ".cache"))

import numpy as np
import pytest
import torch


def _convert_float(bits: np.ndarray, source: Any, target: Any, rounding: Any) -> np.ndarray:
    """Floats of one type as another, to nearest even as a GPU does: Triton's interpreter cuts bfloat16 off.

    bits: of the floats of type `source`, a Triton type. Returns those of type `target`.
    """
    names = {"fp8e4nv": "float8_e4m3fn", "fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}
    types = [getattr(torch, names[x.scalar.name]) for x in (source, target)]
    width = f"int{target.scalar.primitive_bitwidth}"
    held = torch.from_numpy(np.ascontiguousarray(bits).view(f"int{source.scalar.primitive_bitwidth}"))
    return held.view(types[0]).to(types[1]).view(getattr(torch, width)).numpy().view(f"u{width}")


def _index_of(patch: Any) -> Any:
    """`interpreter._patch_lang_tensor`, with bounds of loops that numpy 2.4 takes too."""

    def patched(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    return patched


def _interpret_triton() -> None:
    """In this process, not in its children: Triton's own library takes the variable from the environment."""
    os.environ["TRITON_INTERPRET"] = "1"
    import triton.language
    from triton.runtime import interpreter

    triton.knobs.runtime.interpret = True
    del os.environ["TRITON_INTERPRET"]
    interpreter._convert_float = _convert_float
    interpreter._patch_lang_tensor = _index_of(interpreter._patch_lang_tensor)


_interpret_triton()

TOLERANCE = {
    torch.float32: {"rtol": 2e-6, "atol": 2e-6},
    torch.bfloat16: {"rtol": 8e-3, "atol": 8e-3},
    torch.float16: {"rtol": 1e-3, "atol": 1e-3},
    torch.float8_e4m3fn: {"rtol": 0.0625, "atol": 2**-9},
}
"""A few roundings of the type, for values of the order of 1; of an fp8 cache half a rounding, one way up or
the other."""


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
