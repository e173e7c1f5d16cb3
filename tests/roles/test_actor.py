import asyncio
import functools
import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import uvloop

from stretto.roles import config as configs
from stretto.roles import messages as m
from stretto.roles.actor import Context
from stretto.roles.config import Config
from stretto.shm import bell, ring
from stretto.shm.board import Board
from stretto.shm.channel import Sender


def on_a_loop(test: Callable[[Path], Awaitable[None]]) -> Callable[[Path], None]:
    @functools.wraps(test)
    def run(tmp_path: Path) -> None:
        uvloop.run(test(tmp_path))

    return run


@contextmanager
def spinning_role(directory: Path, spin_us: int) -> Iterator[tuple[Context, Sender]]:
    """A role that spins, and its neighbour's end of the one ring it has."""
    fds = [ring.create("scheduler.0>executor.0", 1024), bell.create(), bell.create()]
    neighbour = Sender(*map(os.dup, fds))
    control, ours = socket.socketpair()
    board = Board.create(["executor.0"])
    config = configs.encode(Config(spin_us=spin_us))
    boot = m.Boot("executor", 0, config, str(directory), [m.RingWire("scheduler.0>executor.0")], ["board"])
    yield Context(boot, [*fds, board], ours), neighbour
    neighbour.close()
    control.close()
    ours.close()


@on_a_loop
async def test_a_role_that_spins_is_woken_by_a_record_although_the_bell_stays_silent(tmp_path: Path) -> None:
    with spinning_role(tmp_path, spin_us=10_000) as (ctx, neighbour):
        receiver = ctx.receiver("scheduler.0")
        neighbour.send(b"first")
        await ctx.wait()
        assert list(receiver.drain()) == [b"first"]
        receiver.hear()
        neighbour.send(b"second")
        assert not bell.wait(receiver.bell_fd, 0)
        await ctx.wait()
        assert list(receiver.drain()) == [b"second"]


@on_a_loop
async def test_a_role_that_has_spun_in_vain_is_woken_by_the_bell(tmp_path: Path) -> None:
    with spinning_role(tmp_path, spin_us=1) as (ctx, neighbour):
        waiting = asyncio.create_task(ctx.wait())
        await asyncio.sleep(0)
        assert not waiting.done()
        neighbour.send(b"late")
        await waiting
        assert list(ctx.receiver("scheduler.0").drain()) == [b"late"]


@on_a_loop
async def test_a_ring_that_always_has_something_does_not_keep_the_loop_from_turning(tmp_path: Path) -> None:
    with spinning_role(tmp_path, spin_us=10_000) as (ctx, neighbour):
        turned: list[str] = []
        asyncio.get_running_loop().call_soon(turned.append, "timers, sockets, heartbeat")
        while not turned:
            neighbour.send(b"again")
            await ctx.wait()
            assert list(ctx.receiver("scheduler.0").drain()) == [b"again"]
