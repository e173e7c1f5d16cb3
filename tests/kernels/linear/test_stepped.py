import pytest
import torch

from stretto.kernels.linear import stepped
from stretto.kernels.linear.stepped import Format, Stepped


def test_weights_are_steps_above_a_minimum():
    words = torch.tensor([[0x76543210, 0x0FEDCBA9]], dtype=torch.int32)
    matrix = Stepped(words, torch.tensor([[0.5, 2.0]]).half(), torch.tensor([[-1.0, 0.25]]).half(), 16)
    expected = [0.5 * step - 1 for step in range(8)] + [2.0 * step + 0.25 for step in (*range(9, 16), 0)]
    assert stepped.weights(matrix).tolist() == [expected]


def test_bytes_are_steps_too_also_those_with_the_sign_bit():
    words = torch.tensor([[-1], [0x04030201]], dtype=torch.int32)
    matrix = Stepped(words, torch.ones(2, 1), torch.full((2, 1), -128.0), 4)
    assert stepped.weights(matrix).tolist() == [[127.0] * 4, [-127.0, -126.0, -125.0, -124.0]]
    assert matrix.format == Format(8, 4, torch.float32)


def test_matrices_are_stacked_by_their_outputs():
    words = torch.tensor([[1], [2]], dtype=torch.int32)
    one = Stepped(words, torch.ones(2, 1), torch.zeros(2, 1), 4)
    both = stepped.stack([one, one])
    assert torch.equal(stepped.weights(both), stepped.weights(one).repeat(2, 1))
    assert len(both) == 4


@pytest.mark.parametrize(("words", "groups", "depth"), [(3, 1, 16), (2, 3, 16), (2, 0, 16), (1, 1, 16)])
def test_shapes_that_are_of_no_such_matrix_are_refused(words, groups, depth):
    parts = torch.zeros(1, words, dtype=torch.int32), torch.zeros(1, groups), torch.zeros(1, groups)
    with pytest.raises(ValueError, match=f"{words} words and {groups} groups"):
        Stepped(*parts, depth)
