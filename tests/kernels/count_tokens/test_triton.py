import torch

from stretto.kernels.count_tokens import reference, triton


def test_equals_the_reference_and_passes_over_padding():
    seen, history = torch.randint(9, (200, 11), dtype=torch.int32), torch.zeros(200, 8, dtype=torch.int32)
    slots, positions = torch.randperm(200)[:150], torch.randint(8, (150,))
    tokens = torch.randint(11, (150,), dtype=torch.int32)
    states = [(seen.clone(), history.clone()) for _ in range(2)]
    padded = torch.cat([slots, torch.tensor([-1, -1])])
    zeros = torch.zeros(2, dtype=torch.int64)
    triton.count_tokens(*states[0], padded, torch.cat([positions, zeros]), torch.cat([tokens, zeros.int()]))
    reference.count_tokens(*states[1], slots, positions, tokens)
    for actual, expected in zip(*states, strict=True):
        assert torch.equal(actual, expected)
