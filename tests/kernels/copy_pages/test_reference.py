import torch

from stretto.kernels.copy_pages import copy_pages


def test_whole_pages_are_copied_in_every_layer_and_nothing_else_changes():
    k, v = torch.randn(2, 6, 3, 2, 4), torch.randn(2, 6, 3, 2, 4)
    k_before, v_before = k.clone(), v.clone()
    copy_pages(k, v, torch.tensor([[0, 5], [2, 3]], dtype=torch.int32))
    for after, before in ((k, k_before), (v, v_before)):
        assert torch.equal(after[:, [5, 3]], before[:, [0, 2]])
        assert torch.equal(after[:, [0, 1, 2, 4]], before[:, [0, 1, 2, 4]])


def test_pairs_are_taken_in_order():
    k, v = torch.arange(3.0).reshape(1, 3, 1, 1, 1), torch.zeros(1, 3, 1, 1, 1)
    copy_pages(k, v, torch.tensor([[0, 2], [1, 2]], dtype=torch.int32))
    assert k.flatten().tolist() == [0.0, 1.0, 1.0]


def test_no_pairs_is_no_work():
    k = torch.ones(1, 1, 1, 1, 1)
    copy_pages(k, k.clone(), torch.empty(0, 2, dtype=torch.int32))
    assert k.item() == 1.0
