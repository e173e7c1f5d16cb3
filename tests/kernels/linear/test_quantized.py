import pytest
import torch

from stretto.kernels.linear import quantized
from stretto.kernels.linear.quantized import FORMATS

INT8, INT4 = FORMATS["int8"], FORMATS["int4"]


def round_trip(weight, form, columns=48):
    return quantized.rows(quantized.pack(weight, form, columns), torch.arange(len(weight)))


@pytest.mark.parametrize(("width", "depth"), [(1, 1), (47, 63), (97, 130), (9000, 8)])
@pytest.mark.parametrize("columns", [16, 48])
def test_no_weight_is_further_off_than_half_a_step_of_its_group(width, depth, columns):
    weight = torch.randn(width, depth).half()
    for form in (INT8, INT4):
        off = (round_trip(weight, form, columns) - weight.float()).abs()
        for group in range(0, depth, form.group):
            part = weight[:, group : group + form.group].float()
            lowest, highest = part.amin(1).clamp(max=0), part.amax(1).clamp(min=0)
            step = part.abs().amax(1) / 127 if form is INT8 else (highest - lowest) / 15
            assert (off[:, group : group + form.group] <= 0.52 * step[:, None] + 1e-6).all()


def test_values_on_a_grid_of_sixteen_come_back_exactly():
    scale = (torch.rand(40, 3, 1) * 0.1).half().float()
    minimum = (-torch.rand(40, 3, 1)).half().float()
    steps = torch.arange(32).remainder(16).expand(40, 3, 32)
    grid = (scale * steps + minimum).flatten(1)
    torch.testing.assert_close(round_trip(grid, INT4), grid, rtol=0, atol=2e-3)


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_extremes(form):
    weight = torch.zeros(4, 64)
    weight[1] = 1.0
    weight[2, 5] = -60000.0
    weight[3] = 1e-7
    back = round_trip(weight, form)
    assert torch.equal(back[0], weight[0])
    torch.testing.assert_close(back[1:3], weight[1:3], rtol=1e-3, atol=1e-3)
    assert back.isfinite().all()


def test_rows_come_in_the_order_that_was_asked_for():
    packed = quantized.pack(torch.randn(100, 70), INT8, 48)
    index = torch.tensor([99, 0, 47, 48, 0], dtype=torch.int32)
    assert torch.equal(quantized.rows(packed, index), quantized.rows(packed, torch.arange(100))[index.long()])


def test_activations_are_rounded_row_by_row_and_group_by_group():
    x = torch.tensor([[127.0, 1.4, -2.5, 0.0], [0.0, 0.0, 0.0, 0.0], [1.0, -1.0, 0.5, 0.0]])
    rounded = quantized.round_rows(x, 2)
    assert rounded[0].tolist() == [127.0, 1.0, -2.5, 0.0]
    assert rounded[1].tolist() == [0.0, 0.0, 0.0, 0.0]
    assert rounded[2].tolist() == [1.0, -1.0, 0.5, 0.0]
