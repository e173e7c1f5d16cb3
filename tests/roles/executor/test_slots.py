import numpy as np
import pytest
import torch

from stretto.kernels.apply_controls import PENALTIES
from stretto.roles import messages as m
from stretto.roles.executor.slots import NONE, SAMPLING, DeviceSlots, HostSlots


def admit(slot: int, length: int, pages: list[int], sampling: m.Sampling | None = None) -> m.Admit:
    return m.Admit(slot, length, np.array(pages, np.int32).tobytes(), sampling or m.Sampling())


def pairs(*values: tuple[int, int]) -> np.ndarray:
    return np.array(values, np.int32).reshape(-1, 2)


def test_an_admit_fills_the_table_and_the_length() -> None:
    slots = HostSlots(4, 8, page_size=2)
    entries = slots.admit([admit(2, 3, [7, 5])])
    assert entries.tolist() == [[2, 0, 7], [2, 1, 5]]
    assert slots.lengths.tolist() == [0, 0, 3, 0]
    assert slots.cells(np.array([2, 2, 2]), np.array([0, 1, 3])).tolist() == [14, 15, 11]


def test_growth_appends_in_order_also_several_pages_to_one_slot() -> None:
    slots = HostSlots(4, 8, page_size=1)
    slots.admit([admit(0, 0, []), admit(3, 1, [9])])
    entries = slots.grow(pairs((3, 4), (0, 6), (3, 2), (0, 1), (3, 8)))
    assert entries.tolist() == [[0, 0, 6], [0, 1, 1], [3, 1, 4], [3, 2, 2], [3, 3, 8]]
    assert slots.grow(pairs((0, 5))).tolist() == [[0, 2, 5]]
    assert slots.cells(np.full(4, 3), np.arange(4)).tolist() == [9, 4, 2, 8]


def test_many_pages_of_two_slots_keep_their_order() -> None:
    slots = HostSlots(2, 40, page_size=1)
    pages = np.random.default_rng(0).permutation(80).astype(np.int32)
    slots.grow(np.stack([np.arange(80, dtype=np.int32) % 2, pages], axis=1))
    assert slots.cells(np.zeros(40, np.int64), np.arange(40)).tolist() == pages[::2].tolist()
    assert slots.cells(np.ones(40, np.int64), np.arange(40)).tolist() == pages[1::2].tolist()


def test_an_admit_forgets_what_the_slot_held() -> None:
    slots = HostSlots(1, 4, page_size=2)
    slots.admit([admit(0, 6, [1, 2, 3])])
    slots.admit([admit(0, 0, [2])])
    assert slots.grow(pairs((0, 0))).tolist() == [[0, 1, 0]]
    with pytest.raises(RuntimeError, match="slot 0 has no page for position 4"):
        slots.cells(np.array([0]), np.array([4]))


def test_an_admit_says_what_the_slot_wants_beside_tokens() -> None:
    slots = HostSlots(2, 4, page_size=2)
    wanted = m.Sampling(controls=m.Controls(frequency_penalty=0.5), logprobs=0, prompt_logprobs=4)
    slots.admit([admit(0, 0, []), admit(1, 0, [], wanted)])
    assert slots.kinds.tolist() == [0, PENALTIES]
    assert slots.logprobs.tolist() == [NONE, 0]
    assert slots.prompt_logprobs.tolist() == [NONE, 4]
    slots.admit([admit(1, 0, [])])
    assert [slots.kinds[1], slots.logprobs[1], slots.prompt_logprobs[1]] == [0, NONE, NONE]


def test_nothing_grows_from_nothing() -> None:
    assert HostSlots(1, 1, page_size=1).grow(pairs()).shape == (0, 3)


def test_the_device_keeps_one_row_per_slot() -> None:
    slots = DeviceSlots(3, 5, torch.device("cpu"))
    assert {getattr(slots, name).shape for name in SAMPLING} == {(3,)}
    assert (slots.table.shape, slots.table.dtype) == ((3, 5), torch.int32)
    assert slots.last_token.dtype == torch.int32


def test_a_block_table_has_a_state_in_front_and_an_entry_of_each_group() -> None:
    """Two pages of state; two groups, pages of 4 tokens; the window of the second has left its first page."""
    slots = HostSlots(slots=2, pages_per_slot=3, page_size=4, groups=2, state=2)
    slots.admit([m.Admit(1, 5, np.array([90, 91, 10, -1, 11, 21], np.int32).tobytes(), m.Sampling())])
    assert slots.grow(np.array([[1, 12], [1, 22]])).tolist() == [[1, 6, 12], [1, 7, 22]]
    ones = np.array([1, 1])
    assert slots.cells(ones, np.array([7, 8])).tolist() == [[47, 48], [87, 88]]
    with pytest.raises(RuntimeError, match="slot 1 has no page for position 3"):
        slots.cells(ones, np.array([5, 3]))


def test_the_device_finds_the_table_of_each_group_and_the_state() -> None:
    slots = DeviceSlots(2, 3, torch.device("cpu"), groups=2, state=1)
    slots.table[1] = torch.tensor([90, 10, 20, 11, 21, 12, 22], dtype=torch.int32)
    one = torch.tensor([1])
    assert slots.tables(one, 2).tolist() == [[[10, 11]], [[20, 21]]]
    states = slots.states(one)
    assert states is not None
    assert states.tolist() == [[90]]
    assert DeviceSlots(2, 3, torch.device("cpu")).states(one) is None
