import math

import pytest
import torch
from sampling import in_slots, slots_of

from stretto.kernels.sample import reference, sample

INF, NAN = float("inf"), float("nan")


def draw(logits, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seeds=0, positions=0, function=sample):
    """Tokens of the rows of `logits`; each parameter is one number for all rows or a list."""
    rows = len(logits)

    def column(value, dtype):
        return torch.as_tensor(value, dtype=dtype).expand(rows).contiguous()

    reals = [column(value, torch.float32) for value in (temperature, top_p, min_p)]
    longs = [column(value, torch.int64) for value in (seeds, positions)]
    state = in_slots(reals[0], column(top_k, torch.int32), *reals[1:], longs[0])
    out = torch.full((rows,), -7, dtype=torch.int32)
    function(logits, slots_of(rows), longs[1], state, out)
    assert state.last_token[slots_of(rows)].tolist() == out.clamp(min=0).tolist()
    assert (state.last_token == -7).sum() == rows + 1
    return out


@pytest.mark.parametrize("size", [1, 3, 63, 64, 65, 500, 5000])
@pytest.mark.parametrize("rounded", [False, True], ids=["distinct", "tied"])
def test_every_token_equals_the_references(size, rounded):
    rows = 40
    logits = torch.randn(rows, size) * 3
    logits = logits.round() if rounded else logits
    some = [torch.rand(rows) > 0.5 for _ in range(4)]
    parameters = {
        "temperature": torch.rand(rows) * 2 * some[0],
        "top_k": torch.randint(-1, size + 2, (rows,)) * some[1],
        "top_p": torch.where(some[2], torch.rand(rows), 1.0),
        "min_p": torch.rand(rows) * some[3],
        "seeds": torch.randint(-(2**63), 2**63 - 1, (rows,)),
        "positions": torch.randint(2**40, (rows,)),
    }
    assert torch.equal(draw(logits, **parameters), draw(logits, **parameters, function=reference.sample))


def test_a_token_does_not_depend_on_the_batch():
    logits, seeds, positions = torch.randn(20, 500), torch.arange(20), torch.arange(20) * 3
    together = draw(logits, seeds=seeds, positions=positions, top_p=0.9)
    for row in range(20):
        alone = draw(logits[row : row + 1], seeds=seeds[row], positions=positions[row], top_p=0.9)
        assert alone[0] == together[row]


def test_seeds_and_positions_each_change_the_draw():
    logits = torch.zeros(50, 5000)
    assert len(draw(logits, seeds=torch.arange(50)).unique()) > 45
    assert len(draw(logits, positions=torch.arange(50)).unique()) > 45
    high = torch.arange(50) << 32
    assert len(draw(logits, seeds=high).unique()) > 45
    assert len(draw(logits, positions=high).unique()) > 45


def test_greedy_takes_the_first_of_equal_largest():
    logits = torch.zeros(3, 100)
    logits[0, [40, 70]] = 1.0
    logits[1, 99] = 1.0
    assert draw(logits, temperature=0.0).tolist() == [40, 99, 0]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("size", [5, 64, 100])
def test_rows_without_a_distribution_give_minus_one(temperature, size):
    logits = torch.randn(4, size)
    logits[0, size - 1] = NAN
    logits[1] = -INF
    logits[2, 0] = INF
    tokens = draw(logits, temperature=temperature).tolist()
    assert tokens[:3] == [-1, -1, -1]
    assert 0 <= tokens[3] < size


def test_tokens_at_minus_infinity_are_never_drawn():
    logits = torch.full((200, 100), -INF)
    logits[:, [17, 83]] = 0.0
    for filters in ({}, {"top_k": 50}, {"top_p": 0.99}, {"min_p": 0.01}):
        tokens = draw(logits, seeds=torch.arange(200), **filters)
        assert tokens.unique().tolist() == [17, 83]


def test_a_tiny_temperature_is_greedy_and_a_huge_one_uniform():
    logits = torch.randn(300, 8)
    assert torch.equal(draw(logits, temperature=1e-30), draw(logits, temperature=0.0))
    assert len(draw(logits[:1].expand(300, 8), temperature=1e30, seeds=torch.arange(300)).unique()) == 8


def survivors(logits, **filters):
    """Tokens that can be drawn: temperature is so high that all survivors are about equally likely."""
    rows = logits.expand(600, -1)
    scaled = rows * 1e4
    return draw(scaled, temperature=1e4, seeds=torch.arange(600), **filters).unique().tolist()


def test_top_k_keeps_the_largest_and_all_equals_of_the_last():
    logits = torch.tensor([0.0, 3.0, 1.0, 2.0, 2.0, -1.0])
    assert survivors(logits, top_k=1) == [1]
    assert survivors(logits, top_k=2) == [1, 3, 4]
    assert survivors(logits, top_k=4) == [1, 2, 3, 4]
    assert survivors(logits, top_k=6) == survivors(logits, top_k=0) == survivors(logits, top_k=-1)


def test_top_p_keeps_the_fewest_that_hold_the_mass():
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()
    kept = {p: survivors(logits, top_p=p) for p in (0.0, 0.39, 0.41, 0.69, 0.71, 0.89, 0.91)}
    assert kept == {
        0.0: [0], 0.39: [0], 0.41: [0, 1], 0.69: [0, 1], 0.71: [0, 1, 2], 0.89: [0, 1, 2], 0.91: [0, 1, 2, 3]
    }  # fmt: skip


def test_top_p_counts_mass_after_top_k():
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()
    assert survivors(logits, top_k=2, top_p=0.56) == [0]
    assert survivors(logits, top_k=2, top_p=0.58) == [0, 1]


def test_min_p_is_relative_to_the_likeliest():
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()
    assert survivors(logits, min_p=0.74) == [0, 1]
    assert survivors(logits, min_p=0.76) == [0]
    assert survivors(logits, min_p=1.0) == [0]


def test_top_p_counts_mass_before_min_p():
    logits = torch.tensor([0.5, 0.2, 0.15, 0.1, 0.05]).log()
    assert survivors(logits, top_p=0.8, min_p=0.25) == [0, 1, 2]


FILTERS = [
    {},
    {"temperature": 0.7},
    {"temperature": 1.5},
    {"top_k": 5},
    {"top_p": 0.8},
    {"min_p": 0.1},
    {"temperature": 1.3, "top_k": 12, "top_p": 0.9, "min_p": 0.05},
]


def exact(logits, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0):
    """The distribution by definition, in float64, for distinct logits."""
    p = (logits.double() / temperature).softmax(0)
    order = p.argsort(descending=True)
    if top_k:
        p[order[top_k:]] = 0
    p /= p.sum()
    p[order[1:][p[order].cumsum(0)[:-1] >= top_p]] = 0
    p[p < min_p * p.max()] = 0
    return p / p.sum()


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_draws_follow_the_distribution(filters):
    """Chi-squared over 20,000 draws; the bound is the 99.9 % quantile by Wilson and Hilferty, 1931."""
    draws, size = 20_000, 30
    logits = torch.randn(size) * 1.5
    tokens = draw(logits.expand(draws, size), seeds=torch.arange(draws), positions=5, **filters)
    seen, wanted = torch.bincount(tokens, minlength=size).double(), exact(logits, **filters) * draws
    assert seen[wanted == 0].sum() == 0
    kept = wanted > 0
    statistic = ((seen - wanted)[kept].square() / wanted[kept]).sum().item()
    freedom = int(kept.sum()) - 1
    assert statistic < freedom * (1 - 2 / (9 * freedom) + 3.09 * math.sqrt(2 / (9 * freedom))) ** 3


def test_rare_tokens_are_drawn_as_often_as_they_should():
    """A thousand tokens of probability 1e-6 each: about 100 of 100,000 draws."""
    draws = 100_000
    logits = torch.full((1001,), math.log(1e-6))
    logits[500] = math.log(1 - 1e-3)
    tokens = draw(logits.expand(draws, 1001), seeds=torch.arange(draws))
    assert 70 < (tokens != 500).sum().item() < 130
