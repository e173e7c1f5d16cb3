"""A child's life as the supervisor sees it."""

import asyncio
import os
import select
import signal

import pytest

from stretto.roles import config as configs
from stretto.roles import messages as m
from stretto.roles.child import FIRST_DELAY, MAX_DEATHS, MAX_DELAY, STRANGER, WORKED_SECONDS, Child, Death
from stretto.roles.metrics import METRICS
from stretto.roles.process import Process
from stretto.shm.board import DIED, HEARTBEAT, PID, RESTARTS, Board, State

NAME = "nobody.0"  # no package of this name: the process says so and dies


@pytest.fixture
def board():
    fd = Board.create([NAME])
    board = Board(fd)
    yield board
    board.close()
    os.close(fd)


@pytest.fixture
def child(board, monkeypatch):
    monkeypatch.setitem(METRICS, "nobody", ())

    async def make():
        return Child(NAME, board)

    return asyncio.run(make())


@pytest.fixture
def started(child):
    fds = [os.memfd_create("unused")]
    boot = m.Boot("nobody", 0, configs.encode(configs.Config()), "/nowhere", [], ["unused"])
    child.start(Process("nobody"), boot, fds)
    os.close(fds[0])
    yield child
    child.kill()
    if child.alive:
        child.reap()


def wait_for_exit(child):
    select.select([child.process.pidfd], [], [])


def test_a_started_child_is_on_the_board(started, board):
    assert started.state is board.state(NAME) is State.STARTING
    assert board.row(NAME)[PID] == started.process.pid
    assert board.row(NAME)[RESTARTS] == 0
    assert started.alive


def test_a_child_that_cannot_start_is_reaped_with_its_own_words(started):
    wait_for_exit(started)
    death = started.reap()
    assert "No module named 'stretto.roles.nobody'" in death.words
    assert (death.kind, death.counts) == ("ModuleNotFoundError", 1.0)
    assert not started.alive


@pytest.mark.parametrize(("ours", "counts"), [(True, 1.0), (False, STRANGER)], ids=["ours", "a stranger's"])
def test_a_killed_child_is_reaped_with_the_signals_name(started, ours, counts):
    started.kill(signal.SIGSTOP)
    if ours:
        started.kill()
    else:
        os.kill(started.process.pid, signal.SIGKILL)
    wait_for_exit(started)
    assert started.reap() == Death("killed by SIGKILL", "killed by SIGKILL", counts, killed=True)


def test_speaking_to_a_dead_child_is_no_error(started):
    started.kill()
    wait_for_exit(started)
    started.send(m.Stop(1.0))
    started.reap()
    started.send(m.Stop(1.0))


def test_each_death_without_work_waits_longer_until_the_place_is_given_up(child, board):
    delays = [child.mourn(Death("why", "why", 1.0)) for _ in range(MAX_DEATHS)]
    assert delays == [0.0, *(FIRST_DELAY * 2**i for i in range(MAX_DEATHS - 2)), None]
    assert board.state(NAME) is State.FATAL
    assert board.note(NAME) == "why"
    assert board.row(NAME)[DIED] > 0


def test_deaths_after_work_cost_no_time_and_are_forgiven(child):
    for _ in range(100):
        assert child.mourn(Death("why", "why", 1.0)) == 0.0
        assert child.mourn(Death("why", "why", 0.0)) == 0.0


def test_a_stranger_must_kill_for_long_before_the_place_is_given_up(child):
    delays = [child.mourn(Death("why", "why", STRANGER)) for _ in range(int(MAX_DEATHS / STRANGER))]
    assert None not in delays[:-1]
    assert delays[-1] is None
    assert max(delays[:-1]) == MAX_DELAY


def test_who_was_ready_for_a_while_has_worked(started):
    started.state = State.READY
    started.since -= WORKED_SECONDS
    started.kill()
    wait_for_exit(started)
    assert started.reap().counts == 0.0


def test_silence_is_what_the_watch_saw_since_the_last_heartbeat(child, board):
    child.state = State.READY
    assert [child.silent(1.0) for _ in range(3)] == [1.0, 2.0, 3.0]
    board.row(NAME)[HEARTBEAT] = 5.0
    assert [child.silent(1.0) for _ in range(2)] == [0.0, 1.0]


def test_a_booting_child_is_silent_only_while_it_is_stopped(child):
    child.process, child.state = Process("nobody"), State.STARTING
    assert child.silent(1.0) == 0.0
    child.kill(signal.SIGSTOP)
    os.waitid(os.P_PID, child.process.pid, os.WSTOPPED | os.WNOWAIT)
    assert [child.silent(1.0) for _ in range(2)] == [1.0, 2.0]
    child.kill(signal.SIGCONT)
    os.waitid(os.P_PID, child.process.pid, os.WCONTINUED | os.WNOWAIT)
    assert child.silent(1.0) == 0.0
    child.kill()
    child.reap()
