"""What an admission with controls brings to the device."""

from array import array

import pytest

from stretto.roles import messages as m
from stretto.roles.executor.controls import control_updates


def ids(*tokens: int) -> bytes:
    return array("i", tokens).tobytes()


def admit(controls: m.Controls, prompt_length: int, history: bytes = b"") -> m.Admit:
    return m.Admit(3, 0, ids(7), m.Sampling(controls=controls), prompt_length, history)


def test_controls_that_do_not_look_back_need_no_tokens() -> None:
    updates = control_updates([admit(m.Controls(min_tokens=2, min_tokens_ids=ids(9)), 5)])
    assert updates is not None
    assert updates.slots.tolist() == [3]
    assert updates.prompt_lengths.tolist() == [5]
    assert updates.bans.tolist() == [[-1, 9, 0]]
    assert updates.past.shape == (0, 3)


def test_replayed_output_stands_at_its_positions() -> None:
    updates = control_updates([admit(m.Controls(bad_words=(ids(1, 2),)), 2, ids(5, 6, 8, 1))])
    assert updates is not None
    assert updates.past.tolist() == [[3, 2, 8], [3, 3, 1]]


@pytest.mark.parametrize("controls", [m.Controls(bad_words=(ids(1, 2),)), m.Controls(presence_penalty=0.5)])
def test_controls_that_look_back_without_tokens_are_a_bug(controls: m.Controls) -> None:
    with pytest.raises(RuntimeError, match="slot 3 look back"):
        control_updates([admit(controls, 5)])
