import pytest
import torch

from stretto.kernels.linear import reference


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [0, 1, 9])
def test_the_product_is_written_to_where_it_is_wanted(rows, bias):
    x, weight = torch.randn(rows, 40)[:, :30], torch.randn(50, 30)
    offset = torch.randn(50) if bias else None
    buffer = torch.full((rows + 2, 50), float("nan"))
    reference.multiply(buffer[:rows], x, weight, offset)
    torch.testing.assert_close(buffer[:rows], torch.nn.functional.linear(x, weight, offset))
    assert buffer[rows:].isnan().all()
