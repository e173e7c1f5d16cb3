"""A server of one's own, for the length of an object's life or of a `with` block."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from stretto.roles.client.arguments import configure
from stretto.roles.client.child import Child

SUPERVISOR = (sys.executable, "-m", "stretto.supervisor")


class Server:
    """Starts the role graph for `model` and returns when it serves; `uds` is the path of its socket.

    Args:
        model: directory, .gguf file or hub id; empty: the embedded model.
        command: what runs the supervisor, e.g. behind `taskset` or a profiler.
        quiet: do not copy the server's error output (start-up progress, warnings) to `sys.stderr`.
        options: fields of `stretto.roles.config.Config`, e.g. `max_seqs=8`.

    Raises:
        TypeError: an option does not exist, or means nothing on a private socket.
        ValueError: an option's value is not valid.
        ConnectionFailed: the server did not start; with `quiet` the message quotes its last words.
    """

    def __init__(
        self, model: str = "", *, command: Sequence[str] = SUPERVISOR, quiet: bool = False, **options: Any
    ) -> None:
        self.config = configure(model, options)
        self._child = Child(command, model, options, grace=self.config.grace, quiet=quiet)
        self._finalizer = weakref.finalize(self, self._child.stop)
        try:
            self._child.wait_until_ready()
        except BaseException:
            self._finalizer.detach()
            self._child.abort()
            raise

    @property
    def uds(self) -> str:
        """Path of the Unix socket it serves on."""
        return self._child.uds

    def obituary(self) -> str | None:
        """How the server died, with `quiet` its last words too; None while it lives."""
        return self._child.obituary()

    def close(self) -> None:
        """Stop the server and wait until it is gone; also happens when this object or its process goes."""
        self._finalizer()


@contextmanager
def server(model: str = "", **options: Any) -> Iterator[str]:
    """A server for the length of a `with` block; yields the path of its socket. Arguments as for `Server`."""
    own = Server(model, **options)
    try:
        yield own.uds
    finally:
        own.close()
