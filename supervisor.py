"""The microkernel: launches the role graph, wires it, watches it, repairs it; and the `stretto` command.

The supervisor does no work of its own on requests. It owns what must outlive a role: the rings' descriptors,
the board, the listening socket, the run directory. It learns of a death from the process descriptor, of a
wedge from the heartbeat on the board, and answers both in the same way: fresh rings for the neighbours,
a fresh process for the role.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec
import uvloop

from stretto import __version__
from stretto.bench.cli import bench_command
from stretto.bench.plan import plan_command
from stretto.roles import config as configs
from stretto.roles import graph
from stretto.roles import messages as m
from stretto.roles.actor import SetupError
from stretto.roles.child import Child
from stretto.roles.client.cli import chat_command, generate_command, profile_command, status_command
from stretto.roles.config import Config
from stretto.roles.janitor import hire_janitor
from stretto.roles.options import config_options
from stretto.roles.resolve import resolve
from stretto.shm.board import HEARTBEAT, Board, State
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
        self._run_dir = tempfile.mkdtemp(prefix="stretto-")
        self._janitor = hire_janitor(subprocess.PIPE, self._run_dir, *([config.uds] if config.uds else []))
        self._board_fd = Board.create(graph.names(config))
        self._board = Board(self._board_fd)
        self._trace_fd = Traces.create(graph.names(config))
        self._since = 0
        """Of the recording that runs; 0: none does."""
        self._wiring = graph.Wiring(config)
        self._children = {name: Child(name, self._board) for name in graph.names(config)}
        self._served = False
        self._stopping = False
        self._changed = asyncio.Event()
        self._failure = ""
        self._loop = asyncio.get_running_loop()

    # The three verbs outside: launch, wait, shut down.

    async def launch(self) -> None:
        """Start every role and wait until all are ready; raises `SetupError` with a dead role's own words."""
        for child in self._children.values():
            self._spawn(child)
        self._watch()
        while not self._served:
            await self._changed.wait()
            self._changed.clear()
            if self._failure or self._stopping:
                raise SetupError(self._failure)
            self._served = all(c.state is State.READY for c in self._children.values())

    async def wait(self) -> str:
        """Serve until told to stop or a role is given up; returns the failure, empty when there is none."""
        while not (self._stopping or self._failure):
            await self._changed.wait()
            self._changed.clear()
        return self._failure

    def stop(self) -> None:
        """Ask for an orderly end; a second time: at once."""
        if self._stopping:
            for child in self._children.values():
                child.kill()
        self._stopping = True
        self._changed.set()

    async def shut_down(self) -> None:
        """Stop the roles from the door inwards, each by the ladder, and leave nothing behind."""
        self._stopping = True
        for spec in reversed(graph.ROLES):
            await asyncio.gather(*(self._stop(c) for c in self._children.values() if c.role == spec.name))
        self._wiring.close()
        self._listen.close()
        os.close(self._board_fd)
        os.close(self._trace_fd)
        self._janitor.communicate()  # its end of file: it cleans up and exits

    # A child's life.

    def _spawn(self, child: Child) -> None:
        wires, fds = self._wiring.of(child.name)
        extras = {"board": self._board_fd, "trace": self._trace_fd}
        if any(spec.listens for spec in graph.ROLES if spec.name == child.role):
            extras["listen"] = self._listen.fileno()
        boot = m.Boot(
            child.role, child.index, configs.encode(self.config), self._run_dir, wires, list(extras)
        )
        child.spawn(boot, fds + list(extras.values()))
        assert child.control is not None
        self._loop.add_reader(child.pidfd, self._on_exit, child)
        self._loop.add_reader(child.control.fileno(), self._on_message, child)
        if self._since:
            child.send(m.Trace(self._since))

    def _on_message(self, child: Child) -> None:
        for message in child.messages():
            match message:
                case m.Ready(facts):
                    child.facts, child.state = facts, State.READY
                case m.Progress(text):
                    self._say(f"{child.name}: {text}")
                case m.Failed(error):
                    child.error = error
                case m.Profile(since):
                    self._profile(child, since)
        self._changed.set()

    def _profile(self, asker: Child, since: int) -> None:
        """Record in every role, or no more; whoever asked hears of it last, when all have been told."""
        if not (since and self._since):
            self._since = since
        for child in [*(c for c in self._children.values() if c is not asker), asker]:
            child.send(m.Trace(self._since))

    def _on_exit(self, child: Child) -> None:
        assert child.control is not None
        self._loop.remove_reader(child.pidfd)
        self._loop.remove_reader(child.control.fileno())
        booting = child.state is State.STARTING and not self._served
        how = child.reap()
        self._changed.set()
        if self._stopping or child.state is State.STOPPING:
            child.state = State.DOWN
        elif booting:
            child.state = State.FATAL
            self._failure = self._failure or f"{child.name} did not start: {how}"
        else:
            self._repair(child, how)

    def _repair(self, child: Child, how: str) -> None:
        """Fresh rings for the neighbours, word to those who keep streams, and another process."""
        for name in self._wiring.replace(child.name):
            wires, fds = self._wiring.of(name, child.name)
            self._children[name].send(m.Rewire(wires), fds)
        lost = m.PeerLost(child.role, child.index, self._board.suspect(child.name))
        for other in self._children.values():
            if other.role in graph.KEEPERS and other is not child:
                other.send(lost)
        delay = child.mourn()
        if delay is None:
            self._failure = f"{child.name} died {child.deaths} times in a row; last: {how}"
            return
        self._say(f"{child.name} died ({how}); starting it again")
        self._loop.call_later(delay, self._respawn, child)

    def _respawn(self, child: Child) -> None:
        if not self._stopping and child.state is State.BACKOFF:
            self._spawn(child)

    def _watch(self) -> None:
        """Kill what is wedged or overdue; its exit is then handled like any other."""
        now = time.monotonic()
        for child in self._children.values():
            if child.state is State.READY:
                heard = max(self._board.row(child.name)[HEARTBEAT], child.since)
                if now - heard > self.config.heartbeat_timeout:
                    self._say(f"{child.name} gave no heartbeat for {now - heard:.0f} s")
                    child.kill()
            elif child.state is State.STARTING and now - child.since > self.config.ready_timeout:
                self._say(f"{child.name} was not ready after {self.config.ready_timeout:.0f} s")
                child.kill()
        if not self._stopping:
            self._loop.call_later(WATCH_SECONDS, self._watch)

    async def _stop(self, child: Child) -> None:
        """The ladder: ask, SIGTERM, SIGKILL."""
        if not child.alive:
            return
        ready = child.state is State.READY
        child.state = State.STOPPING
        child.send(m.Stop(self.config.grace))
        if ready and await self._gone(child, self.config.grace + TERM_SECONDS):
            return
        child.kill(signal.SIGTERM)
        if not await self._gone(child, TERM_SECONDS):
            child.kill()
            await self._gone(child, None)

    async def _gone(self, child: Child, timeout: float | None) -> bool:
        """Wait until the child has been reaped, `timeout` seconds at most."""
        try:
            await asyncio.wait_for(child.gone.wait(), timeout)
        except TimeoutError:
            return False
        return True


def listen(config: Config) -> socket.socket:
    """Bind the server's socket, before anything is loaded, so that a taken port is known at once."""
    try:
        if config.uds:
            _clear(Path(config.uds))
            sock = socket.socket(socket.AF_UNIX)
            sock.bind(config.uds)
        else:
            family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
            sock = socket.socket(family)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((config.host, config.port))
    except OSError as error:
        where = config.uds or f"{config.host}:{config.port}"
        option = "--uds" if config.uds else "--host or --port"
        raise SetupError(f"cannot listen on {where}: {error.strerror}; choose another {option}") from error
    sock.listen(2048)
    sock.setblocking(False)
    return sock


def _clear(path: Path) -> None:
    """Remove a socket that nobody serves any more; one that is served, or any other file, stays."""
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()


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


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="stretto")
def main() -> None:
    """Stretto serves large language models: one process per role, the device one step ahead."""


@main.command("serve")
@click.argument("model", default="")
@config_options(skip=("model",))
@click.option("--ready-fd", type=int, hidden=True, help="Write a line here once everything serves.")
@click.option("--parent-fd", type=int, hidden=True, help="Stop when this descriptor reaches its end.")
def serve_command(ready_fd: int | None, parent_fd: int | None, **options: Any) -> None:
    """Serve MODEL: a directory, a .gguf file or a hub id; without it, the embedded model."""
    began = time.monotonic()

    def say(line: str) -> None:
        click.echo(f"stretto: {line}", err=True)

    def ready(config: Config) -> None:
        _greet(config, time.monotonic() - began)
        if ready_fd is not None:
            os.write(ready_fd, b"ready\n")

    try:
        config = resolve(Config(**options), say)
        uvloop.run(serve(config, ready, parent_fd, say))
    except SetupError as error:
        if str(error):
            say(str(error))
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def _greet(config: Config, seconds: float) -> None:
    """Say that the server is ready, and one line to try it."""
    base = f"http://{config.host}:{config.port}"
    where = f"unix:{config.uds}" if config.uds else base
    click.echo(f"Stretto serves {config.served_model_name} at {where} (ready in {seconds:.1f} s)")
    if not config.uds:
        body = (
            f'{{"model": "{config.served_model_name}", '
            '"messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0}'
        )
        click.echo(f"Try: curl {base}/v1/chat/completions -H 'Content-Type: application/json' -d '{body}'")
    sys.stdout.flush()


for command in (
    chat_command,
    generate_command,
    status_command,
    profile_command,
    plan_command,
    bench_command,
):
    main.add_command(command)


if __name__ == "__main__":
    main()
