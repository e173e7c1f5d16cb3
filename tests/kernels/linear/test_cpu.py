import pytest
import torch

from stretto.kernels.linear import Linear, cpu

SHAPES = [(1, 1), (3, 63), (63, 3), (48, 64), (500, 63), (97, 500)]


@pytest.mark.parametrize("dtype", cpu.DTYPES, ids=str)
@pytest.mark.parametrize(("width", "depth"), SHAPES)
@pytest.mark.parametrize("bias", [False, True])
def test_equals_the_exact_product(width, depth, dtype, bias, nan):
    weight, x = torch.randn(width, depth).to(dtype), torch.randn(63, depth)
    offset = torch.randn(width) if bias else None
    out = nan(63, width)
    assert Linear(weight, offset)(x, out) is out
    exact = x.double() @ weight.double().T + (offset.double() if bias else 0)
    torch.testing.assert_close(out.double(), exact, rtol=0, atol=3e-7 * depth)


@pytest.mark.parametrize("dtype", cpu.DTYPES, ids=str)
@pytest.mark.parametrize(("width", "depth"), [(576, 1536), (100, 576)])
def test_the_bits_of_a_row_do_not_depend_on_the_number_of_rows(width, depth, dtype):
    layer, x = Linear(torch.randn(width, depth).to(dtype)), torch.randn(513, depth)
    whole = layer(x)
    for rows in (*range(1, 65), 127, 255, 256, 500):
        assert torch.equal(layer(x[:rows]), whole[:rows])


def test_the_bits_of_a_row_do_not_depend_on_its_place_or_neighbours():
    layer, x = Linear(torch.randn(100, 576).half()), torch.randn(63, 576)
    order = torch.randperm(63)
    assert torch.equal(layer(x[order]), layer(x)[order])


def test_a_neighbour_of_nan_is_not_infected():
    layer, x = Linear(torch.randn(50, 30)), torch.randn(3, 30)
    clean = layer(x)
    x[1] = float("nan")
    dirty = layer(x)
    assert torch.equal(dirty[[0, 2]], clean[[0, 2]])
    assert dirty[1].isnan().all()


def test_rows_and_outputs_may_be_strided(nan):
    layer, x, out = Linear(torch.randn(50, 30)), torch.randn(9, 40), nan(9, 60)
    layer(x[:, 5:35], out[:, :50])
    assert torch.equal(out[:, :50], layer(x[:, 5:35].contiguous()))
    assert out[:, 50:].isnan().all()


@pytest.mark.parametrize("width", [1, 48, 97])
def test_weights_of_a_row_are_found_again(width):
    weight = torch.randn(width, 30).half()
    index = torch.randint(width, (20,))
    assert torch.equal(Linear(weight).rows(index), weight[index])


def test_no_rows_give_no_rows():
    assert Linear(torch.randn(50, 30))(torch.empty(0, 30)).shape == (0, 50)
