import torch

from stretto.kernels.count_tokens import count_tokens


def test_each_slots_token_is_counted_and_kept_at_its_place():
    seen = torch.tensor([[0, 1, 4], [0, 0, 0], [7, 0, 0]], dtype=torch.int32)
    history = torch.zeros(3, 4, dtype=torch.int32)
    tokens = torch.tensor([1, 0], dtype=torch.int32)
    count_tokens(seen, history, torch.tensor([0, 2]), torch.tensor([3, 1]), tokens)
    assert seen.tolist() == [[0, 3, 4], [0, 0, 0], [9, 0, 0]]
    assert history.tolist() == [[0, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0]]
