"""What `stretto.kernels.compiled` compiles of this op."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch

from stretto.kernels.logprobs.triton import logprobs


def cases(capability: int) -> Iterator[tuple[str, Callable[[], None]]]:
    """Vocabularies of Llama 2 and 3, and one of a single split; how many alternatives makes no other code."""
    for vocabulary in (1000, 32000, 128256):
        yield str(vocabulary), partial(_call, vocabulary, 20)


def _call(vocabulary: int, width: int) -> None:
    tokens, ids = torch.empty(2, dtype=torch.int32), torch.empty(2, width, dtype=torch.int32)
    logprobs(torch.empty(2, vocabulary), tokens, torch.empty(2), tokens, ids, torch.empty(2, width))
