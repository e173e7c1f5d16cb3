import pytest
import torch

from stretto.kernels.move_pages import reference, triton

SHAPES = [(1, 1, 6), (3, 2, 64), (16, 3, 80)]
PAGES = torch.tensor([4, 0, 5], dtype=torch.int32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("page_size", "heads", "dim"), SHAPES)
def test_gather_equals_the_reference(page_size, heads, dim, dtype):
    k, v = torch.randn(2, 3, 6, page_size, heads, dim).to(dtype)
    buffers = [torch.full((3, 3, 2, page_size, heads, dim), float("nan")).to(dtype) for _ in range(2)]
    triton.gather_pages(k, v, PAGES, buffers[0])
    reference.gather_pages(k, v, PAGES, buffers[1])
    assert torch.equal(*buffers)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("page_size", "heads", "dim"), SHAPES)
def test_scatter_equals_the_reference(page_size, heads, dim, dtype):
    buffer = torch.randn(3, 3, 2, page_size, heads, dim).to(dtype)
    caches = [torch.zeros(2, 3, 6, page_size, heads, dim, dtype=dtype) for _ in range(2)]
    triton.scatter_pages(*caches[0], PAGES, buffer)
    reference.scatter_pages(*caches[1], PAGES, buffer)
    assert torch.equal(*caches)


def test_entries_of_minus_one_are_passed_over():
    caches, pages = torch.randn(2, 2, 5, 2, 1, 4), torch.tensor([-1, 2], dtype=torch.int32)
    buffer = torch.zeros(2, 2, 2, 2, 1, 4)
    triton.gather_pages(*caches, pages, buffer)
    assert not buffer[0].any()
    assert torch.equal(buffer[1, :, 0], caches[0, :, 2])
    before = caches.clone()
    triton.scatter_pages(*caches, pages, buffer)
    assert torch.equal(caches, before)
