import weakref

import torch

from stretto.roles.executor.buckets import MOST
from stretto.roles.executor.models.workspace import Workspace


def test_a_buffer_is_kept_and_grows_when_it_must() -> None:
    space = Workspace(torch.device("cpu"))
    five = space.rows("a", 5, 3, torch.float32)
    assert five.shape == (5, 3)
    assert space.rows("a", 8, 3, torch.float32).data_ptr() == five.data_ptr()
    nine = space.rows("a", 9, 3, torch.float32)
    assert nine.shape == (9, 3)
    assert space.rows("a", 1, 3, torch.float32).data_ptr() == nine.data_ptr()


def test_names_do_not_share_memory() -> None:
    space = Workspace(torch.device("cpu"))
    a, b = space.rows("a", 1, 4, torch.float32), space.rows("b", 1, 4, torch.float32)
    assert a.data_ptr() != b.data_ptr()


def test_no_rows_are_rows() -> None:
    assert Workspace(torch.device("cpu")).rows("a", 0, 4, torch.float32).shape == (0, 4)


def test_a_buffer_that_captured_steps_may_have_met_lives_on() -> None:
    space = Workspace(torch.device("cpu"))
    small = weakref.ref(space.rows("x", 4, 3, torch.float32)._base)
    large = weakref.ref(space.rows("x", 2 * MOST, 3, torch.float32)._base)
    space.rows("x", 4 * MOST, 3, torch.float32)
    assert small() is not None
    assert large() is None
