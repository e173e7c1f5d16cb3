import pytest
import torch

from stretto.kernels.rope_and_cache import cpu, reference, rope_and_cache


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


@pytest.mark.parametrize("dim", [6, 64, 80])
@pytest.mark.parametrize("tokens", [1, 63])
def test_an_fp8_cache_holds_the_references_quotients_bit_for_bit(tokens, dim):
    *args, keys, values = inputs(tokens, 4, 2, dim, 3)
    args[2][0, 0, :3] = torch.tensor([1e9, -1e9, 1e-9])
    args += [keys.to(torch.float8_e4m3fn), values.to(torch.float8_e4m3fn)]
    args += [torch.tensor([0.7, 1.0]), torch.tensor([0.013, 0.0003])]
    expected = [arg.clone() for arg in args]
    assert cpu.fits(*args[:3], *args[6:])
    rope_and_cache(*args)
    reference.rope_and_cache(*expected)
    assert torch.equal(args[0], expected[0])
    for cache, wanted in zip(args[6:8], expected[6:8], strict=True):
        assert torch.equal(cache.view(torch.uint8), wanted.view(torch.uint8))


@pytest.mark.parametrize("dim", [6, 64, 80])
@pytest.mark.parametrize("tokens", [1, 63])
def test_a_float16_cache_holds_the_references_numbers_bit_for_bit(tokens, dim):
    *args, keys, values = inputs(tokens, 4, 2, dim, 3)
    args[2][0, 0, :4] = torch.tensor([1e9, -1e9, 65520.0, 1e-7])
    args += [keys.half(), values.half()]
    expected = [arg.clone() for arg in args]
    assert cpu.fits(*args[:3], *args[6:])
    rope_and_cache(*args)
    reference.rope_and_cache(*expected)
    assert torch.equal(args[0], expected[0])
    for cache, wanted in zip(args[6:], expected[6:], strict=True):
        torch.testing.assert_close(cache, wanted, rtol=0, atol=0, equal_nan=True)
    assert args[7].flatten(0, 1)[args[5][0], 0, :3].tolist() == [65504.0, -65504.0, 65504.0]


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
