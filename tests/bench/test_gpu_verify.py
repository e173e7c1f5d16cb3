import pytest
import torch

from stretto.bench.gpu_verify import CASES, compare, to
from stretto.kernels.prepare_step.state import SlotState


def test_every_case_writes_what_it_says():
    for op, cases in CASES.items():
        for case in cases(True):
            assert case.written, op
            assert all(isinstance(case.arguments[number], (torch.Tensor, tuple)) for number in case.written)


def test_what_differs_by_more_than_a_few_roundings_is_found():
    one = torch.ones(3, dtype=torch.bfloat16)
    compare("op", one * 1.01, one, exact=False)
    with pytest.raises(AssertionError, match="op"):
        compare("op", one * 1.05, one, exact=False)
    with pytest.raises(AssertionError, match="op"):
        compare("op", one * 1.01, one, exact=True)


def test_a_nan_that_the_reference_has_not_is_found():
    compare("op", torch.tensor([float("nan")]), torch.tensor([float("nan")]), exact=False)
    with pytest.raises(AssertionError, match="op"):
        compare("op", torch.tensor([float("nan")]), torch.tensor([1.0]), exact=False)


def test_copies_share_nothing_with_the_originals():
    state = SlotState(*(torch.zeros(2, dtype=torch.int32) for _ in range(4)))
    copied = to(state, torch.device("cpu"))
    copied.lengths[0] = 5
    assert isinstance(copied, SlotState)
    assert state.lengths.tolist() == [0, 0]
