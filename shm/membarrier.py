"""A memory barrier in all processes at once, paid for by the one that asks for it: membarrier(2).

It lets two sides agree without a barrier on the frequent one. Both store a word, then load the other's; of
two such sides at least one must see the other's store. Where the rare side calls `everywhere` between its
two accesses, the frequent one need only have called `join`, once: each of its pairs of accesses is either
over by then and its store seen, or its load comes later and sees the rare side's store.
"""

from __future__ import annotations

import ctypes
import functools
import platform

_SYSCALL = {"x86_64": 324, "aarch64": 283, "riscv64": 283, "ppc64le": 365, "s390x": 356}
_GLOBAL_EXPEDITED, _REGISTER_GLOBAL_EXPEDITED = 1 << 1, 1 << 2


@functools.cache
def join() -> bool:
    """Take part, for the life of this process; False where the kernel or a container forbids it."""
    return _call(_REGISTER_GLOBAL_EXPEDITED) and _call(_GLOBAL_EXPEDITED)


def everywhere() -> None:
    """A full barrier here and in every thread of all processes that have joined; only after `join`."""
    if not _call(_GLOBAL_EXPEDITED):
        raise RuntimeError("membarrier(2) fails, although it worked before")


def _call(command: int) -> bool:
    number = _SYSCALL.get(platform.machine())
    return number is not None and _libc().syscall(number, command, 0, 0) == 0


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)
