"""What `stretto.kernels.compiled` compiles of this op."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch

from stretto.kernels.prepare_step.state import Deltas, SlotState, StepInputs
from stretto.kernels.prepare_step.triton import prepare_step


def cases(capability: int) -> Iterator[tuple[str, Callable[[], None]]]:
    """Decodes alone, and a mixed step: the same code."""
    yield "decode 64", partial(_call, 64, 64)
    yield "mixed 256", partial(_call, 2048, 256)


def _call(rows: int, sequences: int) -> None:
    def whole(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.int32)

    def long(count: int) -> torch.Tensor:
        return torch.empty(count, dtype=torch.int64)

    state = SlotState(whole(257), whole(257), whole(257, 512), whole(257))
    deltas = Deltas(whole(4), whole(64, 2), whole(64, 2), whole(64, 3), whole(rows), whole(sequences))
    tables = whole(sequences, 512)
    starts, lengths = whole(sequences + 1), whole(sequences)
    places = long(rows), long(sequences), starts, lengths, tables
    sampled = long(sequences), long(sequences), long(sequences)
    prepare_step(state, deltas, StepInputs(whole(rows), whole(rows), *places, *sampled), 16)
