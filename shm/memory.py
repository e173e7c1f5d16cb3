"""Sealed shared memory: a memfd whose size is final, so that no process can make another fault on it.

The file has no name in any file system. It lives as long as a descriptor or a mapping of it does, which is
why a crash, even of every process at once, leaves nothing behind.
"""

from __future__ import annotations

import fcntl
import mmap
import os

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


def create(name: str, size: int) -> int:
    """Descriptor (close-on-exec) of `size` zero bytes; `name` shows in /proc/PID/maps."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    return fd


def attach(fd: int) -> mmap.mmap:
    """Map the whole memory for reading and writing; the mapping does not need `fd` any more.

    Raises ValueError where `fd` is something else: without the seals, a peer could shrink the file and a
    later access would be a SIGBUS rather than an error.
    """
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError as error:
        raise ValueError(f"descriptor {fd} is not shared memory: {error}") from error
    if seals & _SEALS != _SEALS:
        raise ValueError(f"descriptor {fd} is shared memory whose size is not sealed")
    return mmap.mmap(fd, os.fstat(fd).st_size)
