import pytest
import torch

from stretto.kernels import kv_cache


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn])
def test_a_type_of_eight_bits_has_scales_and_the_others_have_none(dtype):
    q, cache, scale = torch.randn(2, 3, 8), torch.zeros(4, 16, 3, 8).to(dtype), torch.ones(3)
    assert kv_cache.fits([q], cache, cache, None, None) == (dtype in (torch.float32, torch.float16))
    assert kv_cache.fits([q], cache, cache, scale, scale) == (dtype is torch.float8_e4m3fn)
    assert not kv_cache.fits([q], cache, cache, scale, None)


def test_heads_lie_side_by_side_and_caches_are_alike_and_dense():
    wide, cache = torch.randn(2, 5, 8), torch.zeros(4, 16, 3, 8)
    assert kv_cache.fits([wide[:, :3]], cache, cache, None, None)
    assert not kv_cache.fits([wide[:, :3], wide[:, ::2]], cache, cache, None, None)
    assert not kv_cache.fits([wide.half()], cache, cache, None, None)
    assert not kv_cache.fits([wide], cache, cache.half(), None, None)
    assert not kv_cache.fits([wide], cache[:, ::2], cache, None, None)
