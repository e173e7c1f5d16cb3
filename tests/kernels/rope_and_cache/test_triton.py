import pytest
import torch

from stretto.kernels.rope_and_cache import reference, triton

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def call(function, dtype, heads, kv_heads, dim, page_size=3, cache_dtype=None, scales=()):
    """Five tokens, the fourth a graph's padding; returns queries, keys and values, everything else NaN."""
    torch.manual_seed(0)
    qkv = torch.randn(5, heads + 2 * kv_heads, dim).to(dtype)
    q, k, v = qkv.split([heads, kv_heads, kv_heads], dim=1)
    caches = torch.full((2, 6, page_size, kv_heads, dim), float("nan")).to(cache_dtype or dtype)
    slots = torch.randperm(6 * page_size)[:5]
    slots[3] = -1
    positions = torch.tensor([0, 9, 3, 4, 4], dtype=torch.int32)
    function(q, k, v, torch.randn(10, dim), positions, slots, *caches, *scales)
    return qkv, *caches


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(9, 3, 64), (4, 4, 80), (2, 1, 6), (7, 1, 96)])
def test_equals_the_reference_to_the_bit(heads, kv_heads, dim, dtype):
    actual = call(triton.rope_and_cache, dtype, heads, kv_heads, dim)
    expected = call(reference.rope_and_cache, dtype, heads, kv_heads, dim)
    for mine, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("page_size", [1, 16, 128])
def test_pages_of_any_size(page_size):
    actual = call(triton.rope_and_cache, torch.float32, 4, 2, 16, page_size)
    expected = call(reference.rope_and_cache, torch.float32, 4, 2, 16, page_size)
    for mine, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=0, equal_nan=True)


def test_an_fp8_cache_holds_saturated_quotients():
    scales = (torch.tensor([0.01, 0.001]), torch.tensor([0.5, 0.003]))
    options = (torch.bfloat16, 4, 2, 16, 3, torch.float8_e4m3fn, scales)
    actual, expected = (call(run.rope_and_cache, *options) for run in (triton, reference))
    assert expected[1].float().abs().nan_to_num().max() == 448
    for mine, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(mine.float(), other.float(), rtol=0, atol=0, equal_nan=True)
