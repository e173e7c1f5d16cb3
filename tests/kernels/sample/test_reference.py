import pytest
import torch
from transformers import MinPLogitsWarper, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from stretto.kernels.sample import reference

KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_philox_gives_the_published_answers(counter, key, expected):
    """Random123's known-answer vectors for philox4x32-10."""
    assert tuple(reference.philox(torch.tensor([counter]), key)[0].tolist()) == expected


def test_exp_and_log_are_within_two_units_in_the_last_place():
    x = torch.linspace(-87, 0, 100_001)
    torch.testing.assert_close(reference.exp(x).double(), x.double().exp(), rtol=2.4e-7, atol=0)
    y = torch.cat([torch.linspace(1e-9, 30, 100_001), torch.tensor([2.0**-33])])
    torch.testing.assert_close(reference.log(y).double(), y.double().log(), rtol=2.4e-7, atol=1e-9)


def test_noise_is_finite_whatever_the_bits(monkeypatch):
    bits = torch.tensor([[0, 1, 0xFFFFFFFE, 0xFFFFFFFF]])
    monkeypatch.setattr(reference, "philox", lambda counter, key: bits)
    noise = reference.gumbel(0, 0, 4, torch.device("cpu"))
    assert noise.isfinite().all()
    assert noise[0] == pytest.approx(22.87, abs=0.01)
    assert noise[3] == pytest.approx(-2.81, abs=0.01)


def test_noise_has_the_moments_of_a_gumbel_variable():
    noise = reference.gumbel(7, 3, 200_000, torch.device("cpu")).double()
    assert noise.mean().item() == pytest.approx(0.5772, abs=0.01)
    assert noise.var().item() == pytest.approx(1.6449, abs=0.03)


@pytest.mark.parametrize("top_k", [0, 20])
@pytest.mark.parametrize("top_p", [1.0, 0.9, 0.5])
@pytest.mark.parametrize("min_p", [0.0, 0.02, 0.3])
def test_filters_keep_what_those_of_transformers_keep_in_their_order(top_k, top_p, min_p):
    """Which is temperature, top-k, top-p, min-p, as in SGLang and llama.cpp; vLLM begins with min-p."""
    logits, heat = torch.randn(50, 100) * 2, 1.5
    warpers = [TemperatureLogitsWarper(heat)]
    warpers += [TopKLogitsWarper(top_k)] if top_k else []
    warpers += [TopPLogitsWarper(top_p), MinPLogitsWarper(min_p)]
    wanted = logits
    for warper in warpers:
        wanted = warper(None, wanted)
    depths = (logits.amax(1, keepdim=True) - logits) / heat
    kept = torch.stack([row <= reference.deepest(row, top_k, top_p, min_p) for row in depths])
    assert torch.equal(kept, wanted.isfinite())
