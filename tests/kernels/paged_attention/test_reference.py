import torch
import torch.nn.functional as F

from stretto.kernels.paged_attention import reference


def test_one_sequence_equals_torch_attention():
    q, k, v = torch.randn(5, 4, 16), torch.randn(1, 5, 2, 16), torch.randn(1, 5, 2, 16)
    out = torch.empty_like(q)
    zero, five = torch.zeros(1, 1, dtype=torch.int32), torch.tensor([5], dtype=torch.int32)
    reference.paged_attention(out, q, k, v, zero, torch.tensor([0, 5], dtype=torch.int32), five, 0.25)
    heads = [x.transpose(0, 1)[None] for x in (q, k[0], v[0])]
    expected = F.scaled_dot_product_attention(*heads, is_causal=True, scale=0.25, enable_gqa=True)
    torch.testing.assert_close(out, expected[0].transpose(0, 1), rtol=1e-5, atol=1e-6)
