"""A directory for a socket, that goes when its owner does."""

from __future__ import annotations

import os
import tempfile

from stretto.roles.janitor import hire_janitor

SOCKET_PATH_BYTES = 107
"""Longest path that fits `sockaddr_un`."""


class PrivateDirectory:
    """A fresh 0700 directory, removed by `close` or by the end of this process, even by SIGKILL.

    `alive_fd` is the reading end of a pipe that comes to its end then. It may be handed to other processes
    that should end, too; its writing end is never written to, and no program that this one runs inherits it.
    """

    def __init__(self) -> None:
        self.path = tempfile.mkdtemp(prefix="stretto-", dir=_parent())
        self.alive_fd, self._owner_fd = os.pipe()
        self._janitor = hire_janitor(self.alive_fd, self.path)

    def let_go(self) -> None:
        """End the pipe; the directory goes soon."""
        os.close(self._owner_fd)

    def wait(self) -> None:
        """Wait until the directory is gone, after `let_go`."""
        os.close(self.alive_fd)
        self._janitor.wait()


def _parent() -> str | None:
    """Where a socket's path is short enough for the kernel: the usual place, or else /tmp."""
    sample = os.path.join(tempfile.gettempdir(), "stretto-12345678", "http.sock")
    return None if len(os.fsencode(sample)) <= SOCKET_PATH_BYTES else "/tmp"
