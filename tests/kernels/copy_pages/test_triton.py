import pytest
import torch

from stretto.kernels.copy_pages import reference, triton


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("page_size", "heads", "dim"), [(1, 1, 6), (3, 2, 64), (16, 3, 80)])
def test_equals_the_reference(page_size, heads, dim, dtype):
    caches = [torch.randn(2, 3, 7, page_size, heads, dim).to(dtype)] * 2
    caches = [cache.clone() for cache in caches]
    pairs = torch.tensor([[0, 6], [-1, -1], [3, 2], [0, 5]], dtype=torch.int32)
    triton.copy_pages(*caches[0], pairs)
    reference.copy_pages(*caches[1], pairs[[0, 2, 3]])
    assert torch.equal(*caches)
