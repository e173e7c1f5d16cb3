import pytest
import torch

from stretto.kernels.logprobs import logprobs, reference

INF, NAN = float("inf"), float("nan")


def score(logits, tokens, width=0, function=logprobs):
    """(values, ranks, top ids, top values) of the rows of `logits`."""
    rows = len(logits)
    ints = [torch.full((rows, *more), -7, dtype=torch.int32) for more in ((), (width,))]
    reals = [torch.full((rows, *more), NAN) for more in ((), (width,))]
    tokens = torch.as_tensor(tokens, dtype=torch.int32)
    function(logits, tokens, reals[0], ints[0], ints[1], reals[1])
    return reals[0], ints[0], ints[1], reals[1]


def equal(left, right):
    return all(
        torch.equal(a.nan_to_num(nan=77.0), b.nan_to_num(nan=77.0)) for a, b in zip(left, right, strict=True)
    )


@pytest.mark.parametrize("size", [1, 3, 15, 16, 63, 64, 65, 1000, 1024, 1025, 5000])
@pytest.mark.parametrize("rounded", [False, True], ids=["distinct", "tied"])
@pytest.mark.parametrize("width", [0, 1, 20])
def test_every_bit_equals_the_references(size, rounded, width):
    rows = 12
    logits = torch.randn(rows, size) * torch.linspace(0.1, 40, rows)[:, None]
    logits = logits.round() if rounded else logits
    tokens = torch.randint(size, (rows,))
    args = logits, tokens, min(width, size)
    assert equal(score(*args), score(*args, function=reference.logprobs))


def test_values_are_the_log_softmax():
    logits = torch.randn(20, 5000) * 8
    tokens = torch.randint(5000, (20,))
    expected = logits.double().log_softmax(1)
    values, _, ids, top = score(logits, tokens, 5)
    torch.testing.assert_close(values.double(), expected[torch.arange(20), tokens], rtol=0, atol=3e-6)
    torch.testing.assert_close(top.double(), expected.gather(1, ids.long()), rtol=0, atol=3e-6)


def test_near_certainty_is_told_from_certainty():
    logits = torch.full((1, 1001), -20.0)
    logits[0, 0] = 0.0
    (value,), _, _, _ = score(logits, [0])
    assert value.item() == pytest.approx(-1000 * 2.061153622e-9, abs=2e-7)


def test_a_rank_counts_the_larger_alone():
    logits = torch.tensor([[1.0, 3.0, 3.0, 2.0, 0.0]]).expand(5, 5)
    assert score(logits, range(5))[1].tolist() == [4, 1, 1, 3, 5]


def test_the_likeliest_come_in_order_and_equals_by_id():
    logits = torch.zeros(1, 200)
    logits[0, [150, 9, 70]] = 2.0
    logits[0, 199] = 5.0
    _, _, ids, top = score(logits, [0], 6)
    assert ids.tolist() == [[199, 9, 70, 150, 0, 1]]
    assert top[0, 1] == top[0, 3] > top[0, 4] == top[0, 5]


def test_rising_and_falling_rows_are_found_too():
    rising = torch.arange(3000.0).expand(1, 3000)
    assert score(rising, [0], 4)[2].tolist() == [[2999, 2998, 2997, 2996]]
    assert score(-rising, [0], 4)[2].tolist() == [[0, 1, 2, 3]]


def test_a_token_that_cannot_come_has_minus_infinity():
    logits = torch.tensor([[0.0, -INF, -1e9]])
    values, ranks, ids, top = score(logits.expand(3, 3), [0, 1, 2], 3)
    assert values.tolist() == [0.0, -INF, -1e9]
    assert ranks.tolist() == [1, 3, 2]
    assert ids[0].tolist() == [0, 2, 1]
    assert top[0].tolist() == [0.0, -1e9, -INF]


def test_a_row_without_a_distribution_has_no_probabilities():
    logits = torch.zeros(5, 70)
    logits[0, 69] = NAN
    logits[1] = -INF
    logits[2, 3] = INF
    values, ranks, ids, top = score(logits, [0, 0, 0, -1, 0], 2)
    assert values.isnan().tolist() == [True, True, True, True, False]
    assert ranks.tolist() == [0, 0, 0, 0, 1]
    assert ids.tolist() == [[-1, -1]] * 4 + [[0, 1]]
    assert top[:4].isnan().all()


def test_a_row_does_not_depend_on_the_others_nor_on_how_many_are_wanted():
    logits = torch.randn(30, 3000) * 5
    tokens = torch.randint(3000, (30,))
    together = score(logits, tokens, 20)
    for row in range(30):
        alone = score(logits[row : row + 1], tokens[row : row + 1], 7)
        assert torch.equal(alone[0], together[0][row : row + 1])
        assert torch.equal(alone[3], together[3][row : row + 1, :7])
    assert equal(score(logits[::3], tokens[::3], 20), [column[::3] for column in together])
