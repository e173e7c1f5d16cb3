"""The supervisor as a child process, tied to this one by two pipes.

The child writes a line to the first when everything serves. The second, which is the private directory's, is
never written to: when its writing end closes, with this process however that ends, the child stops.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from stretto.roles.client.arguments import arguments
from stretto.roles.client.errors import ConnectionFailed
from stretto.roles.client.private import PrivateDirectory
from stretto.roles.client.tail import Tail

STOP_SECONDS = 10.0
"""What the child gets, beyond its own `grace`, before SIGTERM and again before SIGKILL."""


class Child:
    """Runs `command` for `model`, to serve on `uds`, a socket that only this user can reach."""

    def __init__(
        self, command: Sequence[str], model: str, options: Mapping[str, Any], *, grace: float, quiet: bool
    ) -> None:
        self._grace = grace
        self._owner = os.getpid()
        self._directory = PrivateDirectory()
        self.uds = os.path.join(self._directory.path, "http.sock")
        self._ready_fd, ready_fd = os.pipe()
        parent_fd = self._directory.alive_fd
        line = arguments(model, options, uds=self.uds, ready_fd=ready_fd, parent_fd=parent_fd)
        try:
            self._process = self._spawn([*command, *line], (ready_fd, parent_fd))
        finally:
            os.close(ready_fd)
        assert self._process.stderr is not None
        echo = None if quiet else sys.stderr
        self._heard = echo is not None
        self._tail = Tail(self._process.stderr, echo)

    def wait_until_ready(self) -> None:
        """Wait for the child's word; raises `ConnectionFailed` with its `obituary` if it dies first."""
        with os.fdopen(self._ready_fd, "rb") as ready:
            if ready.readline() != b"ready\n":
                self._process.wait()
                raise ConnectionFailed(self.obituary() or "", "server_died")

    def obituary(self) -> str | None:
        """How the child died, with its last words where they were not copied; None while it lives."""
        status = self._process.poll()
        if status is None:
            return None
        self._tail.join()
        how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        gone = f"the server is gone ({how})"
        return gone if self._heard else f"{gone}; its last words:\n{self._tail.text()}"

    def abort(self) -> None:
        """Stop a child that is not ready yet, and need not finish what it has begun."""
        self._process.terminate()
        self.stop()

    def stop(self) -> None:
        """End the child by the ladder (end of the pipe, SIGTERM, SIGKILL) and leave nothing behind."""
        self._directory.let_go()
        if os.getpid() != self._owner:
            return  # a fork of the owner: the child is not ours
        for insist in (self._process.terminate, self._process.kill):
            try:
                self._process.wait(self._grace + STOP_SECONDS)
                break
            except subprocess.TimeoutExpired:
                insist()
        self._process.wait()
        self._tail.join()
        self._directory.wait()

    def _spawn(self, line: list[str], fds: tuple[int, int]) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                line,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=fds,
                start_new_session=True,  # Ctrl-C is for us to act on: it may mean "stop this answer"
            )
        except OSError as error:
            os.close(self._ready_fd)
            self._directory.let_go()
            self._directory.wait()
            raise ConnectionFailed(f"cannot run {line[0]}: {error.strerror}", "server_died") from error
