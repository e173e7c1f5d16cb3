"""Which generation of GPU launches are for, and what a kernel's table of configurations has for it.

A configuration is the keyword arguments of a launch that only speed depends on: block sizes, `num_warps`,
`num_stages`. Every Triton kernel has a table of them by compute capability, chosen beforehand: no start waits
for tuning, and equal machines run equal code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TypeVar

import torch

CAPABILITIES = (80, 90, 100)
"""Compute capabilities the tables are made for: A100, H100 and H200, B200."""

T = TypeVar("T")
_pretended: ContextVar[int | None] = ContextVar("_pretended", default=None)


@contextmanager
def pretend(capability: int) -> Iterator[None]:
    """Choose configurations for that compute capability, whatever the machine has."""
    token = _pretended.set(capability)
    try:
        yield
    finally:
        _pretended.reset(token)


@cache
def _own() -> int:
    if not torch.cuda.is_available():
        return 90
    major, minor = torch.cuda.get_device_capability()
    return 10 * major + minor


def capability() -> int:
    """Compute capability times ten (H200: 90) of the current GPU; without one, 90, for the interpreter."""
    return _pretended.get() or _own()


def choose(table: Mapping[int, T]) -> T:
    """The entry of the newest generation in the table that is no newer than the GPU.

    Raises ValueError where the GPU is older than all of them.
    """
    mine = capability()
    known = [generation for generation in table if generation <= mine]
    if not known:
        raise ValueError(
            f"this GPU has compute capability {mine / 10}, and the kernels need {min(table) / 10} or newer"
        )
    return table[max(known)]
