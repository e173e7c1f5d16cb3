import pytest
import torch

from stretto.kernels.rope_and_cache import reference, rope_and_cache


def inputs(tokens, q_heads, kv_heads, dim, page_size):
    qkv = torch.randn(tokens, q_heads + 2 * kv_heads, dim)
    q, k, v = qkv.split([q_heads, kv_heads, kv_heads], dim=1)
    pages = -(-tokens // page_size) + 2
    caches = torch.full((2, pages, page_size, kv_heads, dim), float("nan"))
    slots = torch.randperm(pages * page_size)[:tokens]
    return q, k, v, torch.randn(50, dim), torch.randint(50, (tokens,), dtype=torch.int32), slots, *caches


@pytest.mark.parametrize("dim", [2, 6, 16, 64, 80])
@pytest.mark.parametrize("page_size", [1, 3, 16])
@pytest.mark.parametrize("tokens", [1, 3, 63])
def test_equals_the_reference_bit_for_bit(tokens, page_size, dim):
    args = inputs(tokens, 4, 2, dim, page_size)
    expected = [arg.clone() for arg in args]
    before = args[1].clone()
    rope_and_cache(*args)
    reference.rope_and_cache(*expected)
    assert torch.equal(args[0], expected[0])
    assert torch.equal(args[1], before)
    for cache, wanted in zip(args[6:], expected[6:], strict=True):
        torch.testing.assert_close(cache, wanted, rtol=0, atol=0, equal_nan=True)


def test_many_tokens_take_the_threaded_path_and_keep_their_bits():
    args = inputs(500, 9, 3, 64, 16)
    expected = [arg.clone() for arg in args]
    rope_and_cache(*args)
    reference.rope_and_cache(*expected)
    assert torch.equal(args[0], expected[0])


def test_cells_of_other_tokens_stay_untouched():
    args = inputs(3, 2, 1, 16, 4)
    rope_and_cache(*args)
    for cache in args[6:]:
        assert cache.flatten(0, 1).isnan().all(dim=(1, 2)).sum() == cache.shape[0] * 4 - 3
