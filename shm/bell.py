"""Doorbells: how one process sleeps until another has something for it (eventfd, see eventfd(2)).

A bell remembers that it was rung, not how often. A kernel lock orders the two sides, so whoever hears a ring
also sees everything that was stored before it, on every machine.
"""

from __future__ import annotations

import ctypes
import os
import select

_eventfd_write = ctypes.PyDLL(None, use_errno=True).eventfd_write
"""A foreign function that is called with the interpreter's lock held."""
_eventfd_write.argtypes = [ctypes.c_int, ctypes.c_uint64]


def create() -> int:
    """Descriptor (non-blocking, close-on-exec) of a silent bell; an event loop can watch it for reading."""
    return os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)


def ring(fd: int) -> None:
    """Wake whoever waits, now or later."""
    os.eventfd_write(fd, 1)


def ring_and_go_on(fd: int) -> None:
    """As `ring`, for a thread that another one of this process must not hold up.

    `ring` gives the interpreter away for the system call. The thread that it wakes takes it, and the one that
    rang stands still until that has done its work, or is scheduled again.
    """
    if _eventfd_write(fd, 1):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def hear(fd: int) -> bool:
    """Silence the bell; True if it had been rung. Never blocks.

    Look for work only *after* hearing: the other order loses a ring that falls between the two.
    """
    try:
        os.eventfd_read(fd)
    except BlockingIOError:
        return False
    return True


def wait(fd: int, seconds: float | None = None) -> bool:
    """Sleep until the bell is rung, without silencing it; False after `seconds`. For use without a loop."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(None if seconds is None else seconds * 1000))
