import pytest
import torch

from stretto.kernels.logprobs import reference, triton

INF, NAN = float("inf"), float("nan")


def score(function, logits, tokens, width):
    """(values, ranks, top ids, top values) of the rows of `logits`."""
    rows = len(logits)
    ints = [torch.full((rows, *more), -7, dtype=torch.int32) for more in ((), (width,))]
    reals = [torch.full((rows, *more), 7.0) for more in ((), (width,))]
    function(logits, torch.as_tensor(tokens, dtype=torch.int32), reals[0], ints[0], ints[1], reals[1])
    return [part.nan_to_num(nan=77.0) for part in (reals[0], ints[0], ints[1], reals[1])]


def assert_equals_the_reference(*args):
    actual, expected = (score(module.logprobs, *args) for module in (triton, reference))
    for mine, other in zip(actual, expected, strict=True):
        assert torch.equal(mine, other)


@pytest.mark.parametrize(("size", "width"), [(1, 1), (3, 3), (65, 2), (1024, 0), (1025, 20), (5000, 5)])
@pytest.mark.parametrize("rounded", [False, True], ids=["distinct", "tied"])
def test_every_bit_equals_the_references(size, width, rounded):
    wide = torch.randn(2, 2 * size) * torch.tensor([[0.5], [20.0]])
    logits = (wide.round() if rounded else wide)[:, :size]
    assert_equals_the_reference(logits, torch.randint(size, (2,)), width)


def test_rows_without_a_distribution_have_no_log_probabilities():
    logits = torch.randn(5, 100)
    logits[0, 99], logits[1], logits[2, 0] = NAN, -INF, INF
    logits[4, 3:] = -INF
    assert_equals_the_reference(logits, [1, 2, 3, -1, 50], 5)
