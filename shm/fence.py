"""The memory barrier that rings need between a payload and the counter that publishes it."""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Callable

_ORDERED = frozenset({"x86_64", "AMD64"})
"""Total store order: stores become visible in program order, loads happen in program order."""
_SEQ_CST = 5
"""`memory_order_seq_cst` of C11, as every libatomic numbers it."""


def fence(machine: str | None = None) -> Callable[[], None] | None:
    """A full barrier for this machine, or None where the hardware's own order suffices (x86-64).

    Elsewhere (arm64, POWER, RISC-V) it is C11's `atomic_thread_fence`. Raises RuntimeError where none can be
    had: a ring without it would work on most days.
    """
    machine = machine or platform.machine()
    if sys.maxsize < 2**63 - 1:
        raise RuntimeError(
            "shared-memory rings need a 64-bit Python: their counters are single 8-byte stores"
        )
    if machine in _ORDERED:
        return None
    try:
        barrier = ctypes.CDLL("libatomic.so.1").atomic_thread_fence
    except (OSError, AttributeError) as error:
        raise RuntimeError(
            f"shared-memory rings on {machine} need a memory barrier: install libatomic (libatomic1)"
        ) from error
    barrier.argtypes, barrier.restype = [ctypes.c_int], None
    return lambda: barrier(_SEQ_CST)
