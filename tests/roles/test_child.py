"""A child's life as the supervisor sees it."""

import asyncio
import os
import select
import signal

import pytest

from stretto.roles import config as configs
from stretto.roles import messages as m
from stretto.roles.child import FIRST_DELAY, MAX_DEATHS, Child
from stretto.shm.board import PID, RESTARTS, Board, State

NAME = "nobody.0"  # no package of this name: the process says so and dies


@pytest.fixture
def board():
    fd = Board.create([NAME])
    board = Board(fd)
    yield board
    board.close()
    os.close(fd)


@pytest.fixture
def spawned(board):
    async def make():
        return Child(NAME, board)

    child = asyncio.run(make())
    fds = [os.memfd_create("unused")]
    boot = m.Boot("nobody", 0, configs.encode(configs.Config()), "/nowhere", [], ["unused"])
    child.spawn(boot, fds)
    os.close(fds[0])
    yield child
    child.kill()
    if child.alive:
        child.reap()


def wait_for_exit(child):
    select.select([child.pidfd], [], [])


def test_a_spawned_child_is_on_the_board(spawned, board):
    assert spawned.state is board.state(NAME) is State.STARTING
    assert board.row(NAME)[PID] == spawned.process.pid
    assert spawned.alive
    assert not spawned.gone.is_set()


def test_a_child_that_cannot_start_is_reaped_with_its_own_words(spawned):
    wait_for_exit(spawned)
    assert "No module named 'stretto.roles.nobody'" in spawned.reap()
    assert not spawned.alive
    assert spawned.gone.is_set()


def test_a_killed_child_is_reaped_with_the_signals_name(spawned):
    spawned.kill(signal.SIGSTOP)
    spawned.kill()
    wait_for_exit(spawned)
    assert spawned.reap() == "killed by SIGKILL"


def test_speaking_to_a_dead_child_is_no_error(spawned):
    spawned.kill()
    wait_for_exit(spawned)
    spawned.send(m.Stop(1.0))
    spawned.reap()
    spawned.send(m.Stop(1.0))


def test_each_death_in_a_row_waits_longer_until_the_role_is_given_up(board):
    child = Child(NAME, board)
    delays = [child.mourn() for _ in range(MAX_DEATHS)]
    assert delays == [0.0, *(FIRST_DELAY * 2**i for i in range(MAX_DEATHS - 2)), None]
    assert board.state(NAME) is State.FATAL
    assert board.row(NAME)[RESTARTS] == MAX_DEATHS
