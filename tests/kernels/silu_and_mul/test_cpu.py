import pytest
import torch

from stretto.kernels.silu_and_mul import reference, silu_and_mul


@pytest.mark.parametrize("width", [1, 3, 16, 63, 500])
@pytest.mark.parametrize("rows", [1, 3, 63])
def test_equals_the_reference(rows, width, nan, assert_close):
    gate_up, out, expected = torch.randn(rows, 2 * width) * 3, nan(rows, width), nan(rows, width)
    silu_and_mul(out, gate_up)
    reference.silu_and_mul(expected, gate_up)
    assert_close(out, expected)


def test_extreme_gates_neither_overflow_nor_turn_into_nan():
    gate = torch.tensor([[-1e30, -100.0, -88.0, 0.0, 88.0, 100.0, 1e30]])
    out = torch.empty(1, 7)
    silu_and_mul(out, torch.cat([gate, torch.ones(1, 7)], dim=1))
    assert out[0, :3].abs().max() < 1e-6
    assert torch.equal(out[0, 3:], gate[0, 3:])


def test_nan_in_the_gate_comes_out():
    out = torch.empty(1, 1)
    silu_and_mul(out, torch.tensor([[float("nan"), 1.0]]))
    assert out.isnan().all()
