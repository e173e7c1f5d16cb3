"""What `stretto.kernels.compiled` compiles of this op."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch

from stretto.kernels.sample.state import State
from stretto.kernels.sample.triton import sample


def cases(capability: int) -> Iterator[tuple[str, Callable[[], None]]]:
    """Vocabularies of Llama 2 and 3, and one of a single split: their number, padded, makes other code."""
    for vocabulary in (1000, 32000, 128256):
        yield str(vocabulary), partial(_call, vocabulary)


def _call(vocabulary: int) -> None:
    real, whole, long = (torch.empty(2, dtype=t) for t in (torch.float32, torch.int32, torch.int64))
    state = State(real, whole, real, real, long, whole)
    sample(torch.empty(2, vocabulary), long, long, state, whole)
