"""From a plan's few numbers to the inputs of its forward pass, where the slot state lives."""

from __future__ import annotations

import torch

from stretto.kernels.late import Late
from stretto.kernels.prepare_step import reference
from stretto.kernels.prepare_step.state import Deltas, SlotState, StepInputs

__all__ = ["Deltas", "SlotState", "StepInputs", "prepare_step"]

gpu = Late("stretto.kernels.prepare_step.triton")


def prepare_step(state: SlotState, deltas: Deltas[torch.Tensor], inputs: StepInputs, page_size: int) -> None:
    """Apply a plan to the state and write what its step needs into `inputs`, in place.

    In this order: admits, appends, then every sequence, chunks first, grows by its tokens. A decode row takes
    its slot's `last_token`. A slot has at most one chunk or decode in a plan. How much of each buffer is used
    is known to the device alone (`Deltas.counts`): launches depend on the sizes of the buffers, so a captured
    graph serves every plan that fits them, and nothing is allocated or waited for.

    A token whose page was never appended gets the cell -1, and with it no place in the cache: that plans name
    their pages is for the host to check.
    """
    if state.table.is_cuda:
        gpu.prepare_step(state, deltas, inputs, page_size)
    else:
        reference.prepare_step(state, deltas, inputs, page_size)
