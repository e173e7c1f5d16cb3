"""One child process of the supervisor: its life as a state machine, and the control edge to it.

down ──spawn──▶ starting ──Ready──▶ ready ──stop──▶ stopping ──exit──▶ down
                   │                  │
                   └──exit, wedge─────┴──▶ backoff ──spawn──▶ starting      (too often: fatal)
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import msgspec

from stretto.roles import messages as m
from stretto.roles.actor import MAX_CONTROL_BYTES
from stretto.shm.board import PID, RESTARTS, STARTED, Board, State

MAX_DEATHS = 6
"""Deaths in a row, none of them after `STABLE_SECONDS` of service, after which a role is given up."""
STABLE_SECONDS = 30.0
FIRST_DELAY = 0.25
"""Seconds before the second restart in a row; doubled each time. The first is immediate."""

_encoder = msgspec.msgpack.Encoder()
_to_supervisor = msgspec.msgpack.Decoder(m.ToSupervisor)


class Child:
    """A role's process as the supervisor sees it."""

    def __init__(self, name: str, board: Board) -> None:
        self.name = name
        self.role, index = name.split(".")
        self.index = int(index)
        self.facts: dict[str, object] = {}
        self.error = ""
        """Its own last words."""
        self.since = 0.0
        """When it entered its state, `time.monotonic()`."""
        self.deaths = 0
        self.gone = asyncio.Event()
        """Set while there is no process."""
        self.process: subprocess.Popen[bytes] | None = None
        self.control: socket.socket | None = None
        self.pidfd = -1
        self._board = board
        self._state = State.DOWN
        self.state = State.DOWN

    @property
    def state(self) -> State:
        return self._state

    @state.setter
    def state(self, state: State) -> None:
        self._state, self.since = state, time.monotonic()
        self._board.set_state(self.name, state)

    @property
    def alive(self) -> bool:
        """There is a process."""
        return self.process is not None

    def spawn(self, boot: m.Boot, fds: list[int]) -> None:
        """Start the process: a fresh interpreter, never a fork of this one."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "stretto.roles.actor", self.role, str(theirs.fileno())]
        self.process = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            process_group=0,  # Ctrl-C in the terminal is the supervisor's alone
        )
        theirs.close()
        self.gone.clear()
        ours.setblocking(False)
        self.control, self.pidfd = ours, os.pidfd_open(self.process.pid)
        self.error, self.facts = "", {}
        self.state = State.STARTING
        row = self._board.row(self.name)
        row[PID], row[STARTED] = self.process.pid, self.since
        self._board.forget(self.name)
        self.send(boot, fds)

    def send(self, message: m.ToRole, fds: list[int] | None = None) -> None:
        """Send a control message; a child that does not read is killed, as it is no use any more."""
        if self.control is None:
            return
        try:
            socket.send_fds(self.control, [_encoder.encode(message)], fds or [])
        except BlockingIOError:
            self.kill()
        except (BrokenPipeError, ConnectionResetError):
            pass  # it died; its exit is on the way

    def messages(self) -> Iterator[m.ToSupervisor]:
        """What the child has said since the last call."""
        while self.control is not None:
            try:
                data = self.control.recv(MAX_CONTROL_BYTES)
            except (BlockingIOError, ConnectionResetError):
                return
            if not data:
                return
            yield _to_supervisor.decode(data)

    def reap(self) -> str:
        """Collect the dead process; returns how it died, in words."""
        assert self.process is not None
        code = self.process.wait()
        for message in self.messages():
            if isinstance(message, m.Failed):
                self.error = message.error
        if self.control is not None:
            self.control.close()
        os.close(self.pidfd)
        if self.state is State.READY and time.monotonic() - self.since > STABLE_SECONDS:
            self.deaths = 0
        self.process = self.control = None
        self.gone.set()
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return self.error or f"exited with status {code}"

    def mourn(self) -> float | None:
        """Count a death; returns the seconds to wait before the next start, None when it is given up."""
        self.deaths += 1
        self._board.row(self.name)[RESTARTS] += 1
        if self.deaths >= MAX_DEATHS:
            self.state = State.FATAL
            return None
        self.state = State.BACKOFF
        return 0.0 if self.deaths == 1 else FIRST_DELAY * 2 ** (self.deaths - 2)

    def kill(self, sig: signal.Signals = signal.SIGKILL) -> None:
        """Signal the process, if there is one."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(sig)
