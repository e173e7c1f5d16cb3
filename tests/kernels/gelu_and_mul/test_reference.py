import math

import pytest
import torch

from stretto.kernels.gelu_and_mul import gelu_and_mul


@pytest.mark.parametrize("tanh", [False, True], ids=["erf", "tanh"])
def test_the_gate_is_gelu_by_definition(assert_close, nan, tanh):
    gates, ups, out = [-3.0, -0.5, 0.0, 1.0, 2.5], [2.0, -1.0, 5.0, 0.5, -2.0], nan(1, 5)

    def share(x):
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        return (1 + (math.tanh(inner) if tanh else math.erf(x / math.sqrt(2)))) / 2

    gelu_and_mul(out, torch.tensor([gates + ups]), tanh)
    assert_close(out, torch.tensor([[x * share(x) * up for x, up in zip(gates, ups, strict=True)]]))
