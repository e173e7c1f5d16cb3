import pytest
import torch

from stretto.kernels.linear import quantized, rounding
from stretto.kernels.linear.cpu import COLUMNS
from stretto.kernels.linear.quantized import FORMATS


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("shape", [(1, 1), (3, 63), (48, 64), (97, 500), (5000, 65)])
def test_weights_are_rounded_as_the_reference_does(form, shape):
    weight = torch.randn(shape) * torch.rand(shape[0], 1) * 100
    weight[0], weight[-1, 0] = 0, 1e-9  # no span, and one below what float16 can say
    for stored in (weight.half(), weight.bfloat16(), weight):
        expected = quantized.pack(stored, FORMATS[form], COLUMNS)
        packed = rounding.pack(stored, FORMATS[form])
        assert torch.equal(packed.blocks, expected.blocks)
        assert (packed.width, packed.depth, packed.columns) == (*shape, COLUMNS)
