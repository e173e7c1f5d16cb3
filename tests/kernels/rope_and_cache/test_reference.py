import torch

from stretto.kernels.rope_and_cache import reference


def test_a_quarter_turn_swaps_the_halves():
    x = torch.tensor([[[1.0, 2.0, 3.0, 4.0]]])
    quarter = torch.tensor([[0.0, 0.0, 1.0, 1.0]])
    assert reference.rotate(x, quarter).flatten().tolist() == [-3.0, -4.0, 1.0, 2.0]
