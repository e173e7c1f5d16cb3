import pytest
import torch

from stretto.kernels.apply_controls import BANS, BIAS, PENALTIES, State, reference, triton

INF = float("inf")


def make_state(slots, size, kinds):
    """Random controls with a taste for short words; what a slot's kinds do not have is full of traps."""
    bias = torch.where(torch.rand(slots, size) < 0.2, -INF, torch.randn(slots, size))
    seen = (torch.rand(slots, size) < 0.1) + 2 * torch.randint(4, (slots, size))
    bans = torch.tensor([runs(size) for _ in range(slots)])
    strengths = [torch.rand(slots) * 2 + 0.1 for _ in range(3)]
    bias[kinds & BIAS == 0] = float("nan")
    seen[kinds & PENALTIES == 0] = -1
    bans[kinds & BANS == 0] = 1
    lengths, least = torch.randint(20, (slots,)).int(), torch.randint(10, (slots,)).int()
    history = torch.randint(3, (slots, 31)).int()
    return State(kinds, bias, bans.int(), seen.int(), history, lengths, least, *strengths)


def runs(size):
    """Bans in 120 numbers: two ids before a minimum, six words of up to four ids, a word of 70."""
    words = [torch.randint(3, (n,)).tolist() for n in torch.randint(1, 5, (6,)).tolist()]
    found = [-2, int(torch.randint(size, ())), size, *(i for word in words for i in (len(word), *word))]
    found += [70, *[1] * 70]
    return found + [0] * (120 - len(found))


@pytest.mark.parametrize("size", [3, 500, 1501])
def test_every_bit_equals_the_references(size):
    kinds = torch.arange(8, dtype=torch.int32).repeat(2)
    state = make_state(16, size, kinds)
    rows, slots = torch.randperm(40)[:16], torch.randperm(16)
    positions = state.prompt_lengths[slots].long() + torch.randint(8, (16,))
    logits = torch.randn(40, size + 7)[:, :size] * 4
    expected = logits.clone()
    reference.apply_controls(expected, rows, slots, positions, state)
    triton.apply_controls(logits, rows, slots, positions, state)
    assert torch.equal(logits, expected)


def test_a_word_longer_than_a_block_is_banned_after_all_its_ids():
    state = make_state(1, 5, torch.tensor([BANS], dtype=torch.int32))._replace(
        history=torch.randint(5, (1, 201)).int(), bans=torch.zeros(1, 160, dtype=torch.int32)
    )
    state.prompt_lengths[0] = 30
    zero = torch.tensor([0])
    for changed, expected in ((0, [0.0, 0.0, -INF, 0.0, 0.0]), (1, [0.0] * 5)):
        state.bans[0, 0], state.bans[0, 150] = 150, 2
        state.bans[0, 1:150] = state.history[0, 51:200]
        state.history[0, 51] = (state.history[0, 51] + changed) % 5
        logits = torch.zeros(1, 5)
        triton.apply_controls(logits, zero, zero, zero + 200, state)
        assert logits[0].tolist() == expected


def test_rows_of_no_slot_are_passed_over():
    state, logits = make_state(1, 50, torch.tensor([7], dtype=torch.int32)), torch.randn(2, 50)
    before, one = logits.clone(), torch.tensor([1])
    triton.apply_controls(logits, one, one - 2, one, state)
    assert torch.equal(logits, before)
