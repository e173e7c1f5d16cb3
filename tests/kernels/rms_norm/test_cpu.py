import pytest
import torch

from stretto.kernels.rms_norm import cpu, reference, rms_norm

WIDTHS = [1, 3, 16, 63, 500]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("rows", [1, 3, 63])
def test_norm_equals_the_reference(rows, width, nan, assert_close):
    x, weight, out, expected = torch.randn(rows, width), torch.rand(width), nan(rows, width), nan(rows, width)
    rms_norm(out, x, weight, 1e-5)
    reference.rms_norm(expected, x, weight, 1e-5)
    assert_close(out, expected)


@pytest.mark.parametrize("width", WIDTHS)
def test_residual_is_updated_then_normed(width, nan, assert_close):
    x, weight, out, expected = torch.randn(5, width), torch.rand(width), nan(5, width), nan(5, width)
    residual, expected_residual = (torch.ones(5, width) for _ in range(2))
    rms_norm(out, x, weight, 1e-5, residual)
    reference.rms_norm(expected, x, weight, 1e-5, expected_residual)
    assert torch.equal(residual, 1 + x)
    assert torch.equal(residual, expected_residual)
    assert_close(out, expected)


def test_out_may_be_x(assert_close, nan):
    x, weight, expected = torch.randn(3, 63), torch.rand(63), nan(3, 63)
    reference.rms_norm(expected, x, weight, 1e-5)
    rms_norm(x, x, weight, 1e-5)
    assert_close(x, expected)


def test_rows_may_be_strided_and_nothing_else_is_written(assert_close, nan):
    wide, weight, out, expected = torch.randn(3, 100), torch.rand(63), nan(3, 80), nan(3, 63)
    rms_norm(out[:, :63], wide[:, 20:83], weight, 1e-5)
    reference.rms_norm(expected, wide[:, 20:83], weight, 1e-5)
    assert_close(out[:, :63], expected)
    assert out[:, 63:].isnan().all()


@pytest.mark.parametrize(("tokens", "width"), [(1, 64), (5, 30), (300, 128)])
def test_heads_in_a_wider_matrix_are_normed_in_place_with_the_bits_of_rows(tokens, width):
    qkv, weight = torch.randn(tokens, 7, width), torch.rand(width)
    heads, expected = qkv[:, 2:5], qkv.clone()
    rows = heads.clone().view(-1, width)
    rms_norm(rows, rows, weight, 1e-5)
    expected[:, 2:5] = rows.view(tokens, 3, width)
    assert cpu.fits(heads, heads, weight, None)
    rms_norm(heads, heads, weight, 1e-5)
    assert torch.equal(qkv, expected)


def test_a_row_has_the_same_bits_alone_and_among_others(nan):
    x, weight, all_rows, one = torch.randn(200, 576), torch.rand(576), nan(200, 576), nan(1, 576)
    rms_norm(all_rows, x, weight, 1e-5)
    for row in (0, 99, 199):
        rms_norm(one, x[row : row + 1], weight, 1e-5)
        assert torch.equal(one[0], all_rows[row])


def test_other_types_go_to_the_reference(assert_close):
    x, weight = torch.randn(3, 63), torch.rand(63)
    out, expected = torch.empty(3, 63, dtype=torch.bfloat16), torch.empty(3, 63)
    assert not cpu.fits(out, x.bfloat16(), weight, None)
    rms_norm(out, x.bfloat16(), weight, 1e-5)
    reference.rms_norm(expected, x, weight, 1e-5)
    torch.testing.assert_close(out, expected.bfloat16(), rtol=2e-2, atol=2e-2)
