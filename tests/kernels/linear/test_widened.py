import pytest
import torch

from stretto.kernels.linear import Linear, stepped
from stretto.kernels.linear.stepped import Format, Stepped

FORMATS = [
    Format(4, 32, torch.float16),
    Format(8, 32, torch.float16),
    Format(4, 32, torch.float32),
    Format(8, 16, torch.float32),
]
each_format = pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)


def matrix(width: int, depth: int, form: Format) -> Stepped:
    """Any steps; scales of so few bits that their products are exact, as those of files are."""
    words = torch.randint(-(2**31), 2**31, (width, depth * form.bits // 32))
    tables = torch.randn(2, width, depth // form.group).half().to(form.table)
    if form.table is torch.float32:
        tables *= torch.randint(1, 64, tables.shape)
    return Stepped(words.int(), *tables, depth)


@each_format
@pytest.mark.parametrize(("width", "depth"), [(1, 32), (48, 64), (97, 96), (200, 576), (50, 1536)])
@pytest.mark.parametrize("bias", [False, True])
def test_the_bits_are_those_of_float32_weights_for_any_number_of_rows(width, depth, form, bias, nan):
    steps, offset = matrix(width, depth, form), torch.randn(width) if bias else None
    layer, plain = Linear(steps, offset), Linear(stepped.weights(steps), offset)
    x = torch.randn(600, depth)
    expected = plain(x)
    for rows in (*range(1, 18), 31, 64, 255, 256, 257, 600):
        out = nan(rows, width)
        assert layer(x[:rows], out) is out
        assert torch.equal(out, expected[:rows])


@each_format
def test_rows_of_the_matrix_are_its_weights(form):
    steps, index = matrix(97, 96, form), torch.randint(97, (40,))
    assert torch.equal(Linear(steps).rows(index), stepped.weights(steps)[index])


@each_format
def test_rows_and_outputs_may_be_strided(form, nan):
    layer, x, out = Linear(matrix(50, 32, form)), torch.randn(19, 40), nan(19, 60)
    layer(x[:, 5:37], out[:, :50])
    assert torch.equal(out[:, :50], layer(x[:, 5:37].contiguous()))
    assert out[:, 50:].isnan().all()


@each_format
def test_a_neighbour_of_nan_is_not_infected(form):
    layer, x = Linear(matrix(50, 32, form)), torch.randn(3, 32)
    clean = layer(x)
    x[1] = float("nan")
    dirty = layer(x)
    assert torch.equal(dirty[[0, 2]], clean[[0, 2]])
    assert dirty[1].isnan().all()


@each_format
def test_the_number_of_threads_changes_no_bit(form):
    layer, x, threads = Linear(matrix(200, 128, form)), torch.randn(40, 128), torch.get_num_threads()
    expected = [layer(x), layer(x[:5])]
    try:
        torch.set_num_threads(1)
        assert torch.equal(layer(x), expected[0])
        assert torch.equal(layer(x[:5]), expected[1])
    finally:
        torch.set_num_threads(threads)


@each_format
def test_no_rows_give_no_rows(form):
    layer = Linear(matrix(50, 32, form))
    assert layer(torch.empty(0, 32)).shape == (0, 50)
    assert layer.rows(torch.empty(0, dtype=torch.int64)).shape == (0, 32)


@each_format
def test_the_kernels_are_named_after_the_format(form):
    assert list(Linear(matrix(50, 32, form)).kernels) == [f"linear {form.name}", f"rows of {form.name}"]
