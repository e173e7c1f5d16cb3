import pytest
import torch

from stretto.kernels.silu_and_mul import reference, triton


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("rows", "width"), [(3, 1), (5, 63), (2, 1500)])
def test_equals_the_reference(assert_close, nan, rows, width, dtype):
    gate_up = (torch.randn(rows, 3 * width) * 2).to(dtype)[:, : 2 * width]
    outs = [nan(rows, 2 * width).to(dtype)[:, :width] for _ in range(2)]
    triton.silu_and_mul(outs[0], gate_up)
    reference.silu_and_mul(outs[1], gate_up)
    assert_close(*outs)


def test_large_gates_pass_and_small_ones_close(nan):
    gate_up, out = torch.tensor([[200.0, -200.0, 0.0, 3.0, 5.0, 7.0]]), nan(1, 3)
    triton.silu_and_mul(out, gate_up)
    assert out.tolist() == [[600.0, 0.0, 0.0]]
