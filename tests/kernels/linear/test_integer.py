import pytest
import torch

from stretto.kernels.linear import Linear, integer, quantized
from stretto.kernels.linear.cpu import COLUMNS
from stretto.kernels.linear.quantized import FORMATS

SHAPES = [(1, 1), (3, 63), (63, 3), (48, 64), (500, 65), (97, 500)]
each_format = pytest.mark.parametrize("form", FORMATS)


@each_format
@pytest.mark.parametrize(("width", "depth"), SHAPES)
@pytest.mark.parametrize("bias", [False, True])
def test_equals_the_product_of_what_was_rounded(width, depth, form, bias, nan):
    x, offset = torch.randn(63, depth), torch.randn(width) if bias else None
    layer, out = Linear(torch.randn(width, depth).half(), offset, form), nan(63, width)
    assert layer(x, out) is out
    rounded = quantized.round_rows(x, FORMATS[form].group).double()
    exact = rounded @ layer.rows(torch.arange(width)).double().T + (offset.double() if bias else 0)
    torch.testing.assert_close(out.double(), exact, rtol=0, atol=1e-6 * depth + 1e-5)


@each_format
@pytest.mark.parametrize(("width", "depth"), [(576, 1536), (100, 576)])
def test_the_bits_of_a_row_do_not_depend_on_the_number_of_rows(width, depth, form):
    layer, x = Linear(torch.randn(width, depth).half(), None, form), torch.randn(257, depth)
    whole = layer(x)
    for rows in (*range(1, 65), 127, 256):
        assert torch.equal(layer(x[:rows]), whole[:rows])


@each_format
def test_the_bits_of_a_row_do_not_depend_on_its_place_or_neighbours(form):
    layer, x = Linear(torch.randn(100, 576), None, form), torch.randn(63, 576)
    x[::7] *= 1e6
    order = torch.randperm(63)
    assert torch.equal(layer(x[order]), layer(x)[order])


@each_format
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_neighbour_that_is_no_number_infects_nobody(form, value):
    layer, x = Linear(torch.randn(50, 130), None, form), torch.randn(3, 130)
    clean = layer(x)
    x[1, 70] = value
    dirty = layer(x)
    assert torch.equal(dirty[[0, 2]], clean[[0, 2]])
    assert dirty[1].isnan().all()


@each_format
def test_rows_and_outputs_may_be_strided(form, nan):
    layer, x, out = Linear(torch.randn(50, 30), None, form), torch.randn(9, 40), nan(9, 60)
    layer(x[:, 5:35], out[:, :50])
    assert torch.equal(out[:, :50], layer(x[:, 5:35].contiguous()))
    assert out[:, 50:].isnan().all()


@each_format
def test_no_rows_give_no_rows_and_zeros_give_zeros(form):
    layer = Linear(torch.randn(50, 30), None, form)
    assert layer(torch.empty(0, 30)).shape == (0, 50)
    assert torch.equal(layer(torch.zeros(2, 30)), torch.zeros(2, 50))


@each_format
def test_the_number_of_threads_changes_no_bit(form):
    layer, x, threads = (
        Linear(torch.randn(200, 130), None, form),
        torch.randn(40, 130),
        torch.get_num_threads(),
    )
    expected = [layer(x), layer(x[:5])]
    try:
        torch.set_num_threads(1)
        assert torch.equal(layer(x), expected[0])
        assert torch.equal(layer(x[:5]), expected[1])
    finally:
        torch.set_num_threads(threads)


@each_format
def test_rows_have_the_bits_of_the_reference(form):
    weight = torch.randn(100, 150).half()
    packed = quantized.pack(weight, FORMATS[form], COLUMNS)
    index = torch.tensor([0, 99, 47, 48, 5, 5], dtype=torch.int32)
    assert torch.equal(integer.rows(packed, index), quantized.rows(packed, index))
    assert integer.rows(packed, index[:0]).shape == (0, 150)
