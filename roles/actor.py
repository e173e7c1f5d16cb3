"""What every role's process shares: its boot, its wires, its mailbox loop, its heartbeat.

A role is a subclass of `Role` named like its package (`roles/scheduler/actor.py` defines `Scheduler`). The
supervisor starts it as `python -m stretto.roles.actor scheduler FD`, where FD is one end of a socket pair:
the control edge, over which messages and ring descriptors come, and whose end of file means that the
supervisor is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import importlib
import logging
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeVar

import msgspec
import uvloop

from stretto.roles import config as configs
from stretto.roles import logs
from stretto.roles import messages as m
from stretto.roles.metrics import Meter
from stretto.roles.trace import RINGS, Probe, Recorder
from stretto.shm import bell
from stretto.shm.board import Board
from stretto.shm.channel import Receiver, Sender, rest, spin
from stretto.shm.trace import Traces

HEARTBEAT_SECONDS = 1.0
MAX_CONTROL_BYTES = 1 << 17
MAX_FDS = 250
_GLANCE_SECONDS = 20e-6
"""A spinning role looks so long at its rings before it looks whether a thread has called it."""
_BREATH_SECONDS = 1e-3
"""So long a role that never sleeps may keep its loop from sockets, timers and the heartbeat."""
_PR_SET_PDEATHSIG = 1


class SetupError(Exception):
    """A role cannot start for a reason its user can mend; the message says how. Shown without a traceback."""


End = TypeVar("End", Sender, Receiver)

_encoder = msgspec.msgpack.Encoder()
_to_role = msgspec.msgpack.Decoder(m.ToRole)


def edge(writer: str, reader: str) -> str:
    """Name of the ring from one process to another, e.g. "scheduler.0>executor.0"."""
    return f"{writer}>{reader}"


class Context:
    """A role's place in the graph: configuration, wires, wake-ups, board row."""

    def __init__(self, boot: m.Boot, fds: list[int], control: socket.socket) -> None:
        self.role, self.index = boot.role, boot.index
        self.name = f"{boot.role}.{boot.index}"
        self.config = configs.decode(boot.config)
        self.run_dir = boot.run_dir
        self.log = logging.getLogger(self.name)
        self.stopping = False
        self.grace = 0.0
        self._control = control
        self._senders: dict[str, Sender] = {}
        self._receivers: dict[str, Receiver] = {}
        self.heed: Callable[[], None] = lambda: None
        """Obeys the control messages that have come."""
        self._spin, self._called, self._breathed = self.config.spin_us / 1e6, False, 0.0
        self._recorder = Recorder()
        self._wakeup = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._calls = bell.create()
        """Rung by other threads."""
        self._loop.add_reader(self._calls, self._on_call)
        extras = fds[3 * len(boot.rings) :]
        self.fds = dict(zip(boot.extra_fds, extras, strict=True))
        self.board = Board(self.fds["board"])
        self.meter = Meter(boot.role, self.board.row(self.name))
        self._crumbs = self.board.crumbs(self.name)
        self.wire(boot.rings, fds)

    # Wires. A role asks for its rings by the neighbour's name; the object stays the same when a
    # neighbour is replaced, only the ring under it changes.

    def sender(self, peer: str) -> Sender:
        """The ring to `peer`, e.g. `ctx.sender("scheduler.0")`."""
        return self._senders[edge(self.name, peer)]

    def receiver(self, peer: str) -> Receiver:
        """The ring from `peer`."""
        return self._receivers[edge(peer, self.name)]

    def endpoint(self, role: str, index: int) -> str:
        """zmq address at which that role instance binds its PULL socket."""
        return f"ipc://{self.run_dir}/{role}.{index}"

    def wire(self, rings: list[m.RingWire], fds: list[int]) -> None:
        """Take the given ring ends into use, replacing those of the same edge."""
        for i, ring in enumerate(rings):
            three = fds[3 * i : 3 * i + 3]
            if ring.edge.startswith(self.name + ">"):
                self._take(self._senders, ring.edge, Sender(*three))
            else:
                self._take(self._receivers, ring.edge, Receiver(*three))

    def _take(self, table: dict[str, End], edge: str, end: End) -> None:
        old = table.setdefault(edge, end)
        if old is not end:
            self._loop.remove_reader(old.bell_fd)
            old.replace(end)
        self._loop.add_reader(old.bell_fd, self._on_bell, old)

    def _on_bell(self, end: Sender | Receiver) -> None:
        end.hear()
        self._wakeup.set()

    def _on_call(self) -> None:
        bell.hear(self._calls)
        self._wakeup.set()

    # Waking up.

    async def wait(self) -> None:
        """Sleep until a ring, the control edge or `wake` has something; may return early, never late.

        Control is obeyed first: a request that a gateway sent after it heard of a neighbour's death must not
        find the old ring.
        """
        if self._spin and not self._wakeup.is_set():
            self._look()
            await self._breathe()
        await self._wakeup.wait()
        self._wakeup.clear()
        self._called = False
        self.heed()

    def _look(self) -> None:
        """Watch the rings for a while instead of sleeping at once; a wake-up by a thread ends it."""
        receivers = list(self._receivers.values())
        until = time.perf_counter() + self._spin
        while not self._called and time.perf_counter() < until:
            if spin(receivers, _GLANCE_SECONDS):
                self._wakeup.set()
                return
        if rest(receivers):
            self._wakeup.set()

    async def _breathe(self) -> None:
        """Let the loop turn now and then: rings that always have something are not all there is."""
        now = time.perf_counter()
        if now > self._breathed + _BREATH_SECONDS:
            self._breathed = now
            await asyncio.sleep(0)

    def wake(self) -> None:
        """Make `wait` return; for use on the loop's thread."""
        self._wakeup.set()

    def wake_from_thread(self) -> None:
        """Make `wait` return; for use on any other thread, which goes on with its own work first."""
        self._called = True
        bell.ring_and_go_on(self._calls)

    def tell(self, message: m.ToSupervisor) -> None:
        """Send a control message to the supervisor."""
        self._control.send(_encoder.encode(message))

    def at_work(self, uid: int, lane: int = 0) -> None:
        """Leave a breadcrumb: should this process die now, this request is suspected; 0: work on it is over.

        A thread beside the loop has `lane` 1. Costs one store; the supervisor reads it (`PeerLost.suspect`).
        """
        self._crumbs[lane] = uid

    def record(self, probes: Iterable[Probe], since: int) -> None:
        """Record spans for the recording of this name; 0: record no more."""
        self._recorder.stop()
        if since:
            section = Traces(self.fds["trace"]).section(self.name)
            self._recorder.start(section, (*RINGS, *probes), since)


class Role:
    """One actor. Subclasses fill in `open`, `turn` or `run`, and what to do when a neighbour dies."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx

    @classmethod
    def load(cls, config: configs.Config) -> None:
        """Import what takes long, for a successor whose predecessor still works."""

    async def open(self) -> dict[str, Any]:
        """Load what the role needs. What it returns is shown by `stretto status`."""
        return {}

    def turn(self) -> None:
        """Drain the inbox, do the work, send; never blocks."""
        raise NotImplementedError

    async def run(self) -> None:
        """Work until `ctx.stopping`."""
        while not self.ctx.stopping:
            self.turn()
            await self.ctx.wait()

    async def close(self) -> None:
        """Let go of what `open` took."""

    def rewired(self, edge: str, killed: bool = False) -> None:
        """The ring of this edge was replaced by an empty one because the neighbour died, or was killed."""

    def peer_lost(self, role: str, index: int, suspect: int = 0) -> None:
        """A role died and what it held is gone (told to gateways and detokenizers).

        `suspect` is the uid it was at work on, 0 for none. The rings of its neighbours are new by now.
        """

    def probes(self) -> tuple[Probe, ...]:
        """The functions of this role that are worth a span in a recording."""
        return ()

    def traced(self, since: int) -> None:
        """The recording of this name is under way in every role, or, with 0, none is any more."""


async def _live(
    kind: Callable[[Context], Role], boot: m.Boot, fds: list[int], control: socket.socket
) -> None:
    loop = asyncio.get_running_loop()
    ctx = Context(boot, fds, control)
    role = kind(ctx)
    facts = await role.open()
    gc.freeze()  # what is there by now stays: no collection need look at it again
    gc.enable()
    news = select.poll()
    news.register(control, select.POLLIN)

    def heed() -> None:
        while news.poll(0):  # before every turn, so it is cheap when there is nothing
            _obey(role, *_receive(control))

    def on_control() -> None:
        heed()
        ctx.wake()

    ctx.heed = heed

    def beat() -> None:
        ctx.board.beat(ctx.name, time.monotonic())
        loop.call_later(HEARTBEAT_SECONDS, beat)

    beat()
    control.setblocking(False)
    loop.add_reader(control.fileno(), on_control)
    heed()  # a neighbour that died meanwhile: the first turn must find the new ring
    ctx.tell(m.Ready(facts))
    try:
        await role.run()
    finally:
        await role.close()


def _obey(role: Role, message: m.ToRole, fds: list[int]) -> None:
    match message:
        case m.Rewire(rings, killed):
            role.ctx.wire(rings, fds)
            for ring in rings:
                role.rewired(ring.edge, killed)
        case m.PeerLost(peer, index, suspect):
            role.peer_lost(peer, index, suspect)
        case m.Stop(grace):
            role.ctx.stopping, role.ctx.grace = True, grace
        case m.Trace(since):
            role.ctx.record(role.probes(), since)
            role.traced(since)
        case m.Boot() | m.Load():
            raise RuntimeError("a role boots once")


def _receive(control: socket.socket) -> tuple[m.ToRole, list[int]]:
    """Next control message and its descriptors; exits with the supervisor."""
    try:
        data, fds, _, _ = socket.recv_fds(control, MAX_CONTROL_BYTES, MAX_FDS)
    except ConnectionResetError:
        data = b""
    if not data:
        os._exit(0)  # the supervisor is gone: nobody is left to answer to
    return _to_role.decode(data), fds


def die_with_parent() -> None:
    """Ask the kernel for SIGKILL when the supervisor dies, for the case that the loop is stuck then."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def main() -> None:
    """Entry point of every role's process: `python -m stretto.roles.actor ROLE FD`."""
    role, fd = sys.argv[1], int(sys.argv[2])
    gc.disable()  # a start makes little garbage, and collections take a tenth of its time
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the supervisor, which stops us in order
    control = socket.socket(fileno=fd)
    try:
        _be(role, control)
        _leave(0)
    except SetupError as error:
        _confess(control, str(error))
    except Exception as error:
        logging.getLogger(__name__).critical("died of an error that is a bug", exc_info=True)
        _confess(control, f"{type(error).__name__}: {error}")


def _be(role: str, control: socket.socket) -> None:
    """Live the life of a role, from the first message to the last."""
    message, fds = _receive(control)
    if isinstance(message, m.Load):
        _title(f"{role}, waiting")
        _role_class(role).load(configs.decode(message.config))
        control.send(_encoder.encode(m.Loaded()))
        message, fds = _receive(control)
    if not isinstance(message, m.Boot):
        raise RuntimeError(f"a role's life begins with Boot, not with {message}")
    config = configs.decode(message.config)
    _title(message.role + (f" {message.index}" if message.index else ""))
    logs.set_up(f"{message.role}.{message.index}", config.log_level, config.log_format)
    uvloop.run(_live(_role_class(role), message, fds, control))


def _role_class(role: str) -> type[Role]:
    found: type[Role] = getattr(importlib.import_module(f"stretto.roles.{role}.actor"), role.capitalize())
    return found


def _confess(control: socket.socket, error: str) -> None:
    """Tell the supervisor why we die, and die."""
    with contextlib.suppress(OSError):
        control.setblocking(True)
        control.send(_encoder.encode(m.Failed(error[:4000])))
    _leave(1)


def _leave(code: int) -> NoReturn:
    """Exit without tearing the interpreter down, which takes torch most of a second."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _title(name: str) -> None:
    import setproctitle

    setproctitle.setproctitle(f"stretto: {name}")


if __name__ == "__main__":
    # Not this copy of the module: the roles' classes and errors are those of the imported one.
    importlib.import_module("stretto.roles.actor").main()
