import math

import pytest
import torch

from stretto.kernels.apply_controls import BANS, BIAS, IN_OUTPUT, PENALTIES, State, apply_controls, reference
from stretto.kernels.count_tokens import count_tokens
from stretto.kernels.sample import State as SampleState
from stretto.kernels.sample import sample

INF = math.inf


def make_state(slots, size, length=40, width=16):
    """A state without controls; what no part of it may read is full of traps."""
    return State(
        kinds=torch.zeros(slots, dtype=torch.int32),
        bias=torch.full((slots, size), math.nan),
        bans=torch.full((slots, width), 1, dtype=torch.int32),
        seen=torch.full((slots, size), -1, dtype=torch.int32),
        history=torch.full((slots, length + 1), -1, dtype=torch.int32),
        prompt_lengths=torch.zeros(slots, dtype=torch.int32),
        min_tokens=torch.zeros(slots, dtype=torch.int32),
        presence=torch.zeros(slots),
        frequency=torch.zeros(slots),
        repetition=torch.ones(slots),
    )


def control(logits, state, slot=0, position=0):
    """The one row of `logits`, controlled."""
    row = torch.tensor([logits])
    one = torch.tensor([0])
    apply_controls(row, one, one + slot, one + position, state)
    return row[0].tolist()


def with_bans(runs, output, min_tokens=0, prompt_length=3):
    """A state of one slot, and the position after the output."""
    state = make_state(1, 8)
    state.kinds[0] = BANS
    state.bans[0, : len(runs) + 1] = torch.tensor([*runs, 0])
    state.prompt_lengths[0], state.min_tokens[0] = prompt_length, min_tokens
    state.history[0, prompt_length : prompt_length + len(output)] = torch.tensor(output)
    return state, prompt_length + len(output)


def banned(*args, **kwargs):
    """The ids that a row of zeros loses."""
    state, position = with_bans(*args, **kwargs)
    logits = torch.zeros(3, 8)
    apply_controls(logits, torch.tensor([1]), torch.tensor([0]), torch.tensor([position]), state)
    assert not logits[[0, 2]].any()
    return (logits[1] == -INF).nonzero().flatten().tolist()


def test_a_bias_is_added_and_minus_infinity_forbids():
    state = make_state(1, 4)
    state.kinds[0] = BIAS
    state.bias[0] = torch.tensor([0.0, 1.5, -100.0, -INF])
    assert control([1.0, 2.0, 3.0, 4.0], state) == [1.0, 3.5, -97.0, -INF]


def test_a_bad_word_of_one_token_is_always_banned():
    assert banned([1, 5, 1, 2], []) == [2, 5]


def test_the_last_token_of_a_bad_word_is_banned_after_the_others():
    word = [3, 1, 2, 3]
    assert banned(word, [1, 2]) == [3]
    assert banned(word, [7, 1, 2]) == [3]
    assert banned(word, [2, 1]) == banned(word, [1, 2, 7]) == banned(word, [2]) == []


def test_a_bad_word_does_not_begin_in_the_prompt():
    state, position = with_bans([3, 1, 2, 3], [2])
    state.history[0, 2] = 1
    assert control([0.0] * 8, state, position=position) == [0.0] * 8


def test_the_end_is_banned_before_the_minimum():
    assert banned([-2, 4, 6, 1, 5], [], min_tokens=2) == [4, 5, 6]
    assert banned([-2, 4, 6, 1, 5], [0], min_tokens=2) == [4, 5, 6]
    assert banned([-2, 4, 6, 1, 5], [0, 0], min_tokens=2) == [5]


def test_ids_that_have_no_logit_are_passed_over():
    assert banned([-3, 8, -1, 6, 1, 1000, 2, 0, 9], [0], min_tokens=2) == [6]


def with_penalties(seen, presence=0.0, frequency=0.0, repetition=1.0):
    state = make_state(1, len(seen))
    state.kinds[0] = PENALTIES
    state.seen[0] = torch.tensor(seen)
    state.presence[0], state.frequency[0], state.repetition[0] = presence, frequency, repetition
    return state


SEEN = [0, 1, 2, 2 * 3, 2 * 3 + 1]
"""Not there; in the prompt; once in the output; three times; both."""


def test_presence_and_frequency_count_the_output_alone():
    logits = [1.0, 1.0, 1.0, 1.0, -1.0]
    assert control(logits, with_penalties(SEEN, presence=0.5)) == [1.0, 1.0, 0.5, 0.5, -1.5]
    assert control(logits, with_penalties(SEEN, frequency=0.25)) == [1.0, 1.0, 0.75, 0.25, -1.75]
    assert control(logits, with_penalties(SEEN, frequency=-0.25)) == [1.0, 1.0, 1.25, 1.75, -0.25]


def test_repetition_weakens_tokens_of_prompt_and_output():
    logits = [4.0, 4.0, -4.0, 0.0, 4.0]
    assert control(logits, with_penalties(SEEN, repetition=2.0)) == [4.0, 2.0, -8.0, 0.0, 2.0]


def test_penalties_come_in_order():
    state = with_penalties([2 * 2], presence=0.5, frequency=0.25, repetition=2.0)
    assert control([3.0], state) == [3.0 / 2 - 2 * 0.25 - 0.5]


def test_penalties_see_the_bias():
    state = with_penalties([1, 0], repetition=2.0)
    state.kinds[0] |= BIAS
    state.bias[0] = torch.tensor([3.0, 3.0])
    assert control([-1.0, -1.0], state) == [1.0, 2.0]


def random_state(slots, size, kinds):
    state = make_state(slots, size, length=30, width=64)
    state.kinds.copy_(kinds)
    state.bias.copy_(torch.where(torch.rand(slots, size) < 0.2, -INF, torch.randn(slots, size)))
    state.seen.copy_((torch.rand(slots, size) < 0.1) + 2 * torch.randint(4, (slots, size)))
    state.history.copy_(torch.randint(3, (slots, 31)))
    state.prompt_lengths.copy_(torch.randint(20, (slots,)))
    state.min_tokens.copy_(torch.randint(10, (slots,)))
    for column in (state.presence, state.frequency, state.repetition):
        column.copy_(torch.rand(slots) * 2 + 0.1)
    for slot in range(slots):
        words = [torch.randint(3, (n,)).tolist() for n in torch.randint(1, 5, (6,)).tolist()]
        runs = [-1, int(torch.randint(size, ())), *(i for word in words for i in (len(word), *word)), 0]
        state.bans[slot, : len(runs)] = torch.tensor(runs)
    return state


@pytest.mark.parametrize("size", [3, 16, 500, 5001])
def test_every_bit_equals_the_references(size):
    slots = 40
    state = random_state(slots, size, torch.randint(8, (slots,)))
    rows, owners = torch.randperm(60)[:30], torch.randperm(slots)[:30]
    positions = state.prompt_lengths[owners].long() + torch.randint(8, (30,))
    logits = torch.randn(60, size) * 4
    expected = logits.clone()
    reference.apply_controls(expected, rows, owners, positions, state)
    before, others = logits.clone(), torch.ones(60, dtype=torch.bool).index_fill(0, rows, False)
    apply_controls(logits, rows, owners, positions, state)
    assert torch.equal(logits, expected)
    assert torch.equal(logits[others], before[others])
    assert not torch.equal(logits, before)


def test_strided_rows_are_controlled_in_place():
    state = random_state(1, 100, torch.tensor([7]))
    logits, zero = torch.randn(4, 200), torch.tensor([0])
    expected = logits[2:3, :100].clone()
    apply_controls(logits[:, :100], zero + 2, zero, zero + 25, state)
    apply_controls(expected, zero, zero, zero + 25, state)
    assert torch.equal(logits[2, :100], expected[0])


def test_a_counted_token_is_penalised_and_remembered():
    state = with_penalties([0, 0, 0], frequency=0.5)
    state.kinds[0] |= BANS
    state.bans[0, :4] = torch.tensor([2, 1, 2, 0])
    slots, positions = torch.tensor([0]), torch.tensor([5])
    state.prompt_lengths[0] = 5
    count_tokens(state.seen, state.history, slots, positions, torch.tensor([1], dtype=torch.int32))
    assert control([1.0, 1.0, 1.0], state, position=6) == [1.0, 0.5, -INF]


def test_draws_follow_the_controlled_distribution():
    """Chi-squared over 20,000 draws; the bound is the 99.9 % quantile by Wilson and Hilferty, 1931."""
    draws, size = 20_000, 30
    logits = torch.randn(size) * 1.5
    state = with_penalties([0, 1, 2, 5, 7] * 6, presence=0.3, frequency=0.2, repetition=1.4)
    state.kinds[0] |= BIAS | BANS
    state.bias[0] = torch.randn(size).index_fill(0, torch.tensor([4, 9]), -INF)
    state.bans[0, :4] = torch.tensor([-1, 3, 0, 0])
    state.min_tokens[0] = 1
    index, ones, zeros = torch.arange(draws), torch.ones(draws), torch.zeros(draws)
    rows, tokens = logits.repeat(draws, 1), torch.empty(draws, dtype=torch.int32)
    wanted = SampleState(ones, tokens.new_zeros(draws), ones, zeros, index, tokens.clone())
    apply_controls(rows, index, torch.zeros_like(index), torch.zeros_like(index), state)
    sample(rows, index, torch.full_like(index, 5), wanted, tokens)

    wished = logits.double() + state.bias[0].double()
    seen, counts = state.seen[0] > 0, (state.seen[0] // IN_OUTPUT).double()
    wished = torch.where(seen, torch.where(wished > 0, wished / 1.4, wished * 1.4), wished)
    wished = wished - 0.2 * counts - 0.3 * (counts > 0)
    wished[3] = -INF
    wanted, found = wished.softmax(0) * draws, torch.bincount(tokens, minlength=size).double()
    assert found[[3, 4, 9]].sum() == 0
    kept = wanted > 0
    statistic = ((found - wanted)[kept].square() / wanted[kept]).sum().item()
    freedom = int(kept.sum()) - 1
    assert statistic < freedom * (1 - 2 / (9 * freedom) + 3.09 * math.sqrt(2 / (9 * freedom))) ** 3
