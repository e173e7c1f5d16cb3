"""A place in the role graph and the process that fills it: its life as a state machine.

down ──start──▶ starting ──Ready──▶ ready ──stop──▶ stopping, retiring ──exit──▶ down
                   │                  │
                   └──exit, wedge─────┴──▶ backoff ──start──▶ starting      (too often: fatal)

A place is given up only for deaths in a row *without work*: before the process was ready, or at once after.
Whoever has worked is started again at once, however often it dies.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from typing import NamedTuple

from stretto.roles import messages as m
from stretto.roles.metrics import clear_gauges
from stretto.roles.process import Process
from stretto.shm.board import DIED, HEARTBEAT, PID, RESTARTS, STARTED, Board, State

WORKED_SECONDS = 1.5
"""A process that was ready for so long has worked."""
MAX_DEATHS = 6
"""Deaths in a row without work after which a place is given up."""
STRANGER = 0.25
"""What a SIGKILL counts that is not ours: memory is short, or somebody tests us by killing all the time."""
FIRST_DELAY = 0.25
"""Seconds before the start after the second such death, doubled each time; after the first there are none."""
MAX_DELAY = 4.0


class Death(NamedTuple):
    """How a process ended."""

    words: str
    kind: str
    """The same with nothing of its own words, which may name files of this machine."""
    counts: float
    """As so many deaths without work; 0 where it had worked."""
    killed: bool = False
    """By SIGKILL."""


class Child:
    """A role's place as the supervisor sees it; `name` is "tokenizer.0"."""

    def __init__(self, name: str, board: Board) -> None:
        self.name = name
        self.role, index = name.split(".")
        self.index = int(index)
        self.facts: dict[str, object] = {}
        self.error = ""
        """Its own last words."""
        self.since = 0.0
        """When it entered its state, `time.monotonic()`."""
        self.process: Process | None = None
        self.successor: Process | None = None
        """Takes over when `process` has ended."""
        self.on_trial = False
        """Its predecessor still serves, so it may fail to start."""
        self.deaths = 0
        """In a row without work."""
        self._count = 0.0
        """Those, weighed."""
        self._silence = 0.0
        self._beat = 0.0
        self._board, self._row = board, board.row(name)
        self._change = asyncio.Event()
        self._state = State.DOWN
        self.state = State.DOWN

    @property
    def state(self) -> State:
        return self._state

    @state.setter
    def state(self, state: State) -> None:
        self._state, self.since, self._silence = state, time.monotonic(), 0.0
        self._board.set_state(self.name, state)
        self._change.set()

    async def ended(self, process: Process) -> None:
        """Wait until this process has been reaped."""
        while self.process is process:
            self._change.clear()
            await self._change.wait()

    async def settled(self) -> None:
        """Wait while it starts, or waits to."""
        while self._state in (State.STARTING, State.BACKOFF):
            self._change.clear()
            await self._change.wait()

    @property
    def alive(self) -> bool:
        """There is a process."""
        return self.process is not None

    def start(self, process: Process, boot: m.Boot, fds: list[int]) -> None:
        """Fill the place with this process, which has not been booted."""
        self.process, self.error, self.facts = process, "", {}
        self.state = State.STARTING
        self._row[RESTARTS] += bool(self._row[STARTED])
        self._row[PID], self._row[STARTED] = process.pid, self.since
        self._board.forget(self.name)
        process.send(boot, fds)

    def send(self, message: m.ToRole, fds: list[int] | None = None) -> None:
        """Send a control message, if there is a process."""
        if self.process is not None:
            self.process.send(message, fds)

    def messages(self) -> Iterator[m.ToSupervisor]:
        """What the process has said since the last call."""
        return self.process.messages() if self.process is not None else iter(())

    def kill(self, sig: signal.Signals = signal.SIGKILL) -> None:
        """Signal the process, if there is one."""
        if self.process is not None:
            self.process.kill(sig)

    def reap(self) -> Death:
        """Collect the dead process."""
        assert self.process is not None
        for message in self.process.messages():
            if isinstance(message, m.Failed):
                self.error = message.error
        stranger = not self.process.killed
        code = self.process.reap()
        worked = self._state is State.READY and time.monotonic() - self.since > WORKED_SECONDS
        self.process = None
        self._change.set()
        clear_gauges(self.role, self._row)
        if code < 0:
            how = f"killed by {signal.Signals(-code).name}"
            weight = STRANGER if stranger and code == -signal.SIGKILL else 1.0
            return Death(how, how, 0.0 if worked else weight, code == -signal.SIGKILL)
        how = f"exited with status {code}"
        return Death(self.error or how, _kind(self.error) or how, 0.0 if worked else 1.0)

    def mourn(self, death: Death) -> float | None:
        """Count a death; returns the seconds to wait before the next start, None when it is given up."""
        self._row[DIED] = time.monotonic()
        self._board.set_note(self.name, death.kind)
        self.state = State.BACKOFF
        if not death.counts:
            self.deaths, self._count = 0, 0.0
            return 0.0
        self.deaths += 1
        self._count += death.counts
        if self._count >= MAX_DEATHS:
            self.state = State.FATAL
            return None
        return 0.0 if self.deaths == 1 else min(FIRST_DELAY * 2 ** (self.deaths - 2), MAX_DELAY)

    def silent(self, elapsed: float) -> float:
        """Seconds for which the process gave no sign of life; called each `elapsed` seconds.

        Summed over the calls instead of read off the clock: where the supervisor itself was frozen, the
        processes were silent for no longer than it looked. A booting process has no heartbeat yet, and gives
        a sign of life as long as no signal has stopped it.
        """
        beat = self._row[HEARTBEAT]
        if self._state is State.STARTING and self.process is not None:
            alive = not self.process.stopped
        else:
            alive = beat != self._beat
        self._beat = beat
        self._silence = 0.0 if alive else self._silence + elapsed
        return self._silence


def _kind(error: str) -> str:
    """The class of an exception."""
    kind = error.partition(":")[0]
    return kind if kind.isidentifier() else ""
