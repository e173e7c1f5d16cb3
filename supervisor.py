"""The microkernel: launches the role graph, wires it, watches it, repairs it; and the `stretto` command.

The supervisor does no work of its own on requests. It owns what must outlive a role: the rings' descriptors,
the board, the listening socket, the run directory. It learns of a death from the process descriptor, of a
wedge from the heartbeat on the board, and answers both in the same way: fresh rings for the neighbours,
a fresh process for the role.

    serving ──SIGTERM, POST /drain──▶ draining ──gateways done──▶ ending
    (a role that dies is replaced in both)          a second signal ends all at once
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import click
import msgspec
import uvloop

from stretto import __version__
from stretto.roles import config as configs
from stretto.roles import graph, logs, preflight
from stretto.roles import messages as m
from stretto.roles.actor import SetupError
from stretto.roles.child import Child, Death
from stretto.roles.commands import COMMANDS, Commands
from stretto.roles.config import Config
from stretto.roles.greeting import greeting
from stretto.roles.janitor import hire_janitor
from stretto.roles.listening import listen
from stretto.roles.metrics import Meter
from stretto.roles.options import config_options
from stretto.roles.process import Process
from stretto.roles.replacement import Replacer
from stretto.roles.resolve import resolve
from stretto.shm.board import Board, State
from stretto.shm.trace import Traces

WATCH_SECONDS = 1.0
"""How often heartbeats and deadlines are looked at."""
TERM_SECONDS = 2.0
"""How long a role gets between the steps of the shutdown ladder: Stop, SIGTERM, SIGKILL."""

Say = Callable[[str], None]


class Supervisor:
    """Runs one launch of the role graph, from the first spawn to the last reaped child."""

    def __init__(self, config: Config, listen: socket.socket, say: Say) -> None:
        self.config = config
        self._say = say
        self._listen = listen
        self._run_dir = preflight.make_run_dir()
        with preflight.needing("a process that cleans up"):
            paths = [self._run_dir, *([config.uds] if config.uds else [])]
            self._janitor = hire_janitor(subprocess.PIPE, *paths)
        places = graph.places(config)
        with preflight.needing("shared memory for the board and the rings"):
            self._board_fd = Board.create(places)
            self._board = Board(self._board_fd)
            self._trace_fd = Traces.create(places)
            self._wiring = graph.Wiring(config)
        self._since = 0
        """Of the recording that runs; 0: none does."""
        self._children = {name: Child(name, self._board) for name in places}
        self._replacer = Replacer(config, self._children, self._spawn, self._end, say)
        self._served = self._draining = self._ending = False
        self._changed = asyncio.Event()
        self._failure = ""
        self._loop = asyncio.get_running_loop()
        self._watched = time.monotonic()

    # The three verbs outside: launch, wait, shut down.

    async def launch(self) -> None:
        """Start every role and wait until all are ready; raises `SetupError` with a dead role's own words."""
        launched = [self._children[name] for name in graph.names(self.config)]
        for child in launched:
            self._spawn(child)
        self._watch()
        while not self._served:
            await self._changed.wait()
            self._changed.clear()
            if self._failure or self._draining:
                raise SetupError(self._failure)
            self._served = all(c.state is State.READY for c in launched)

    async def wait(self) -> str:
        """Serve until told to stop or a role is given up; returns the failure, empty when there is none."""
        while not (self._draining or self._failure):
            await self._changed.wait()
            self._changed.clear()
        return self._failure

    def stop(self) -> None:
        """Take nothing new and end when all that lives has ended; a second time: end at once."""
        if self._draining:
            self._ending = True
            for child in self._children.values():
                child.kill()
        self._draining = True
        self._board.set_draining()
        self._changed.set()

    async def shut_down(self) -> None:
        """Stop the roles from the door inwards, each by the ladder, and leave nothing behind."""
        self._draining = True
        self._replacer.cancel()
        grace = 0.0 if self._failure else self.config.grace
        if grace and (live := self._live_requests()):
            have = "1 request has" if live == 1 else f"{live} requests have"
            self._say(f"{have} {grace:g} s to finish; a second signal ends what is left")
        until = time.monotonic() + grace
        await self._stop(self._playing("gateway"), grace)
        self._ending = True
        for spec in reversed(graph.ROLES):
            saves = spec.name == "scheduler" and self.config.disk_kv
            await self._stop(self._playing(spec.name), max(until - time.monotonic(), 0.0) if saves else 0.0)
        self._wiring.close()
        self._listen.close()
        os.close(self._board_fd)
        os.close(self._trace_fd)
        self._janitor.communicate()  # its end of file: it cleans up and exits

    def _playing(self, role: str) -> list[Child]:
        return [child for child in self._children.values() if child.role == role]

    def _live_requests(self) -> int:
        gateways = self._playing("gateway")
        return int(sum(Meter(c.role, self._board.row(c.name)).value("requests_live") for c in gateways))

    # A child's life.

    def _spawn(self, child: Child) -> None:
        """Fill the place with its successor, or with a fresh process."""
        wires, fds = self._wiring.of(child.name)
        extras = {"board": self._board_fd, "trace": self._trace_fd}
        if graph.listens(child.role):
            extras["listen"] = self._listen.fileno()
        boot = m.Boot(
            child.role, child.index, configs.encode(self.config), self._run_dir, wires, list(extras)
        )
        try:
            process, child.successor = child.successor or Process(child.role), None
        except OSError as error:
            self._fail(f"cannot start {child.name}: {preflight.advice(error)}")
            return
        child.start(process, boot, fds + list(extras.values()))
        self._loop.add_reader(process.pidfd, self._on_exit, child)
        self._loop.add_reader(process.control.fileno(), self._on_message, child)
        if self._since:
            child.send(m.Trace(self._since))

    def _on_message(self, child: Child) -> None:
        for message in child.messages():
            match message:
                case m.Ready(facts) if child.state is State.STARTING:
                    child.facts, child.state, child.on_trial = facts, State.READY, False
                case m.Progress(text):
                    self._say(f"{child.name}: {text}")
                case m.Failed(error):
                    child.error = error
                case m.Profile(since):
                    self._profile(child, since)
                case m.Restart(role, index) if not self._draining:
                    self._replacer.add(role, index)
                case m.Drain() if not self._draining:
                    self.stop()
        self._changed.set()

    def _profile(self, asker: Child, since: int) -> None:
        """Record in every role, or no more; whoever asked hears of it last, when all have been told."""
        if not (since and self._since):
            self._since = since
        for child in [*(c for c in self._children.values() if c is not asker), asker]:
            child.send(m.Trace(self._since))

    def _on_exit(self, child: Child) -> None:
        assert child.process is not None
        self._loop.remove_reader(child.process.pidfd)
        self._loop.remove_reader(child.process.control.fileno())
        death = child.reap()
        self._changed.set()
        if self._ending or (self._draining and graph.listens(child.role)):
            child.state = State.DOWN
        elif child.state is State.STARTING and not self._served:
            child.state = State.FATAL
            self._fail(f"{child.name} did not start: {death.words}")
        else:
            self._repair(child, death)

    def _repair(self, child: Child, death: Death) -> None:
        """Fresh rings for the neighbours, word to those who keep streams, and another process."""
        try:
            self._sever(child, death)
        except OSError as error:
            self._fail(f"cannot make new rings for {child.name}: {preflight.advice(error)}")
            return
        if child.state is State.RETIRING:
            child.state = State.DOWN
        elif child.on_trial:
            child.state = State.DOWN
            self._say(f"{child.name} did not start: {death.words}")
        elif child.successor is not None:
            self._spawn(child)
        elif (delay := child.mourn(death)) is None:
            self._fail(
                f"{child.name} died {child.deaths} times in a row before it worked; last: {death.words}"
            )
        else:
            self._say(f"{child.name} died ({death.words}); starting it again")
            self._loop.call_later(delay, self._respawn, child) if delay else self._spawn(child)

    def _sever(self, child: Child, death: Death) -> None:
        """Cut a dead process off from the others."""
        for name in self._wiring.replace(child.name):
            wires, fds = self._wiring.of(name, child.name)
            self._children[name].send(m.Rewire(wires, death.killed), fds)
        lost = m.PeerLost(child.role, child.index, self._board.suspect(child.name))
        for other in self._children.values():
            if other.role in graph.KEEPERS and other is not child:
                other.send(lost)

    def _respawn(self, child: Child) -> None:
        if not self._ending and child.state is State.BACKOFF:
            self._spawn(child)

    def _fail(self, failure: str) -> None:
        self._failure = self._failure or failure
        self._changed.set()

    def _watch(self) -> None:
        """Kill what is wedged or overdue; its exit is then handled like any other."""
        now = time.monotonic()
        elapsed, self._watched = min(now - self._watched, 2 * WATCH_SECONDS), now
        for child in self._children.values():
            if child.state in (State.READY, State.STARTING):
                self._look_at(child, child.silent(elapsed), now - child.since)
        if not self._ending:
            self._loop.call_later(WATCH_SECONDS, self._watch)

    def _look_at(self, child: Child, silent: float, age: float) -> None:
        if silent > self.config.heartbeat_timeout:
            self._say(f"{child.name} gave no heartbeat for {silent:.0f} s")
            child.kill()
        elif child.state is State.STARTING and age > self.config.ready_timeout:
            self._say(f"{child.name} was not ready after {self.config.ready_timeout:g} s")
            child.kill()

    # Endings.

    async def _stop(self, children: list[Child], grace: float) -> None:
        """Stop them all, at the same time."""
        await asyncio.gather(*(self._end(child, State.STOPPING, grace) for child in children))

    async def _end(self, child: Child, state: State, grace: float) -> None:
        """The ladder: ask, SIGTERM, SIGKILL. `state` is what the child is in meanwhile."""
        if (process := child.process) is None:
            return
        ready = child.state in (State.READY, State.RETIRING)
        child.state = state
        child.send(m.Stop(grace))
        if ready and await _gone(child, process, grace + TERM_SECONDS):
            return
        process.kill(signal.SIGTERM)
        if not await _gone(child, process, TERM_SECONDS):
            process.kill()
            await _gone(child, process, None)


async def _gone(child: Child, process: Process, timeout: float | None) -> bool:
    """Wait until this process of the child has been reaped, `timeout` seconds at most."""
    try:
        await asyncio.wait_for(child.ended(process), timeout)
    except TimeoutError:
        return False
    return True


async def serve(config: Config, ready: Callable[[Config], None], parent_fd: int | None, say: Say) -> None:
    """Run one launch until a signal, the parent's end, or a role that cannot be kept alive."""
    sock = listen(config)
    if not config.uds:
        config = msgspec.structs.replace(config, port=sock.getsockname()[1])
    supervisor = Supervisor(config, sock, say)
    loop = asyncio.get_running_loop()
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(sig, supervisor.stop)
    if parent_fd is not None:
        loop.add_reader(parent_fd, _on_parent, loop, parent_fd, supervisor)
    try:
        await supervisor.launch()
        ready(config)
        failure = await supervisor.wait()
        if failure:
            raise SetupError(failure)
    finally:
        await supervisor.shut_down()


def _on_parent(loop: asyncio.AbstractEventLoop, fd: int, supervisor: Supervisor) -> None:
    loop.remove_reader(fd)
    supervisor.stop()


# The command line.


@click.group(cls=Commands, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="stretto")
def main() -> None:
    """Stretto serves large language models: one process per role, the device one step ahead."""


@main.command("serve", short_help="Serve a model.")
@click.argument("model", default="")
@config_options(skip=("model",))
@click.option("--ready-fd", type=int, hidden=True, help="Write a line here once everything serves.")
@click.option("--parent-fd", type=int, hidden=True, help="Stop when this descriptor reaches its end.")
def serve_command(ready_fd: int | None, parent_fd: int | None, **options: Any) -> None:
    """Serve MODEL: a directory, a .gguf file or a hub id; without it, the embedded model."""
    began = time.monotonic()
    logs.set_up("supervisor", "info", options["log_format"])
    log = logging.getLogger("stretto")

    def ready(config: Config) -> None:
        click.echo(greeting(config, time.monotonic() - began))
        sys.stdout.flush()
        if ready_fd is not None:
            os.write(ready_fd, b"ready\n")

    try:
        preflight.raise_file_limit()
        config = resolve(Config(**options), log.info)
        uvloop.run(serve(config, ready, parent_fd, log.info))
    except SetupError as error:
        if str(error):
            log.error(str(error))
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
