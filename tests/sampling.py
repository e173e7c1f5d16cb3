"""Rows that sample, in slots that are neither in their order nor next to each other."""

import torch

from stretto.kernels.sample import State


def slots_of(rows: int) -> torch.Tensor:
    """Every second slot, the last row in the first of them."""
    return torch.arange(rows).flip(0) * 2 + 1


def in_slots(*columns: torch.Tensor) -> State:
    """The state that holds what rows want, a column each; other slots hold what no row may see."""

    def spread(column: torch.Tensor) -> torch.Tensor:
        whole = column.new_full((2 * len(column) + 1,), -7)
        return whole.index_copy(0, slots_of(len(column)), column)

    wanted = [spread(column) for column in columns]
    return State(*wanted, torch.full((len(wanted[0]),), -7, dtype=torch.int32))
