"""A role's process as its supervisor holds it: the process descriptor and the control edge."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import msgspec

from stretto.roles import messages as m
from stretto.roles.actor import MAX_CONTROL_BYTES

_encoder = msgspec.msgpack.Encoder()
_to_supervisor = msgspec.msgpack.Decoder(m.ToSupervisor)


class Process:
    """A fresh interpreter, never a fork of this one, that waits for its `Boot`. Raises OSError."""

    def __init__(self, role: str) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.setblocking(False)
        with theirs:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "stretto.roles.actor", role, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                process_group=0,  # Ctrl-C in the terminal is the supervisor's alone
            )
        self.pid = self._popen.pid
        self.pidfd = os.pidfd_open(self.pid)
        """Readable once the process has ended."""
        self.killed = False
        """By `kill`: not by a stranger."""

    def send(self, message: m.ToRole, fds: list[int] | None = None) -> None:
        """Send a control message; a process that does not read is killed, as it is no use any more."""
        try:
            socket.send_fds(self.control, [_encoder.encode(message)], fds or [])
        except (BrokenPipeError, ConnectionResetError):
            pass  # it died; its exit is on the way
        except OSError:  # its mailbox is full, or too many descriptors wait in it
            self.kill()

    def messages(self) -> Iterator[m.ToSupervisor]:
        """What the process has said since the last call."""
        with contextlib.suppress(BlockingIOError, ConnectionResetError):
            while data := self.control.recv(MAX_CONTROL_BYTES):
                yield _to_supervisor.decode(data)

    def kill(self, sig: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal."""
        self.killed = self.killed or sig is signal.SIGKILL
        with contextlib.suppress(ProcessLookupError):
            self._popen.send_signal(sig)

    @property
    def stopped(self) -> bool:
        """A signal has frozen it, or a debugger holds it."""
        with contextlib.suppress(OSError), open(f"/proc/{self.pid}/stat", "rb") as stat:
            return stat.read().rpartition(b") ")[2][:1] in (b"T", b"t")
        return False

    def reap(self) -> int:
        """Wait for its end and let go of it; the exit status, or minus the signal that killed it."""
        code = self._popen.wait()
        self.control.close()
        os.close(self.pidfd)
        return code
