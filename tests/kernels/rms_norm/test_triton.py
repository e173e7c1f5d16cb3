import pytest
import torch

from stretto.kernels.rms_norm import reference, triton

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("residual", [False, True], ids=["plain", "residual"])
@pytest.mark.parametrize(("rows", "width"), [(5, 63), (3, 64), (1, 576), (2, 1500)])
def test_equals_the_reference(assert_close, nan, rows, width, residual, dtype):
    wide = torch.randn(rows, 2 * width).to(dtype)
    x, weight = wide[:, 3 : 3 + width], torch.rand(width).to(dtype)
    sums = [torch.randn(rows, width) for _ in range(1)] * 2 if residual else [None, None]
    sums = [None if s is None else s.clone() for s in sums]
    outs = [nan(rows, width).to(dtype) for _ in range(2)]
    triton.rms_norm(outs[0], x, weight, 1e-5, sums[0])
    reference.rms_norm(outs[1], x, weight, 1e-5, sums[1])
    assert_close(*outs)
    if residual:
        assert torch.equal(*sums)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("tokens", "width"), [(1, 64), (5, 30), (9, 128)])
def test_heads_in_a_wider_matrix_are_normed_in_place(assert_close, tokens, width, dtype):
    qkv, weight = torch.randn(tokens, 7, width).to(dtype), torch.rand(width).to(dtype)
    expected = qkv.clone()
    triton.rms_norm(qkv[:, 2:5], qkv[:, 2:5], weight, 1e-5)
    reference.rms_norm(expected[:, 2:5], expected[:, 2:5], weight, 1e-5)
    assert_close(qkv, expected)
    assert torch.equal(qkv[:, [0, 1, 5, 6]], expected[:, [0, 1, 5, 6]])


def test_a_row_does_not_depend_on_the_batch(nan):
    x, weight, outs = torch.randn(37, 64), torch.rand(64), [nan(37, 64), nan(1, 64)]
    triton.rms_norm(outs[0], x, weight, 1e-5)
    triton.rms_norm(outs[1], x[36:], weight, 1e-5)
    assert torch.equal(outs[0][36:], outs[1])


def test_the_output_may_be_the_input(nan):
    x, weight, out = torch.randn(3, 100), torch.rand(100), nan(3, 100)
    triton.rms_norm(out, x, weight, 1e-5)
    triton.rms_norm(x, x, weight, 1e-5)
    assert torch.equal(out, x)
