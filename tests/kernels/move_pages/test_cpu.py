"""The CPU's page moves against the reference, byte for byte."""

import pytest
import torch

from stretto.kernels.move_pages import cpu, reference


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_pages_go_to_the_buffer_as_the_reference_puts_them(dtype):
    k, v = torch.randn(2, 6, 3, 2, 4).to(dtype), torch.randn(2, 6, 3, 2, 4).to(dtype)
    pages = torch.tensor([5, 0, 2], dtype=torch.int32)
    buffers = [torch.zeros(3, 2, 2, 3, 2, 4, dtype=dtype) for _ in range(2)]
    cpu.gather_pages(k, v, pages, buffers[0])
    reference.gather_pages(k, v, pages, buffers[1])
    assert torch.equal(*buffers)
    assert torch.equal(buffers[0][0, :, 1], v[:, 5])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_pages_come_back_and_the_others_stay(dtype):
    k, v = torch.randn(2, 6, 3, 2, 4).to(dtype), torch.randn(2, 6, 3, 2, 4).to(dtype)
    before = k.clone(), v.clone()
    buffer = torch.randn(2, 2, 2, 3, 2, 4).to(dtype)
    cpu.scatter_pages(k, v, torch.tensor([4, 1], dtype=torch.int32), buffer)
    reference.scatter_pages(*before, torch.tensor([4, 1], dtype=torch.int32), buffer)
    assert torch.equal(k, before[0])
    assert torch.equal(v, before[1])
