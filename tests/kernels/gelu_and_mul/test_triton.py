import pytest
import torch

from stretto.kernels.gelu_and_mul import reference, triton


@pytest.mark.parametrize("tanh", [False, True], ids=["erf", "tanh"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("rows", "width"), [(5, 63), (2, 1500)])
def test_equals_the_reference(assert_close, nan, rows, width, dtype, tanh):
    gate_up = (torch.randn(rows, 3 * width) * 2).to(dtype)[:, : 2 * width]
    outs = [nan(rows, width).to(dtype) for _ in range(2)]
    triton.gelu_and_mul(outs[0], gate_up, tanh)
    reference.gelu_and_mul(outs[1], gate_up, tanh)
    assert_close(*outs)


@pytest.mark.parametrize("tanh", [False, True], ids=["erf", "tanh"])
def test_large_gates_pass_and_small_ones_close(nan, tanh):
    gate_up, out = torch.tensor([[100.0, -100.0, 0.0, 3.0, 5.0, 7.0]]), nan(1, 3)
    triton.gelu_and_mul(out, gate_up, tanh)
    assert out.tolist() == [[300.0, 0.0, 0.0]]
