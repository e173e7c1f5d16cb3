import os

import pytest

from stretto.roles.metrics import FIRST_CELL, METRICS, offsets
from stretto.shm import board, memory
from stretto.shm.board import DIED, HEARTBEAT, PID, RESTARTS, STARTED, STATE, Board, State

NAMES = ["gateway.0", "scheduler.0", "detokenizer.1"]


@pytest.fixture
def fd():
    fd = Board.create(NAMES)
    yield fd
    os.close(fd)


def test_a_process_that_knows_only_the_descriptor_finds_the_rows(fd):
    assert Board(fd).names == NAMES


def test_a_fresh_board_says_that_everything_is_down(fd):
    view = Board(fd)
    assert [view.state(name) for name in NAMES] == [State.DOWN] * 3
    assert view.row("gateway.0").tolist() == [0.0] * 128


def test_what_one_view_stores_the_others_read(fd):
    supervisor, role, reader = Board(fd), Board(fd), Board(fd)
    supervisor.set_state("scheduler.0", State.READY)
    supervisor.row("scheduler.0")[PID] = 4711
    role.beat("scheduler.0", 12.5)
    role.row("scheduler.0")[127] += 0.25
    row = reader.row("scheduler.0")
    assert reader.state("scheduler.0") is State.READY
    assert row[:5].tolist() == [State.READY, 4711.0, 0.0, 12.5, 0.0]
    assert row[127] == 0.25


def test_rows_do_not_touch_each_other(fd):
    view = Board(fd)
    for i, name in enumerate(NAMES):
        row = view.row(name)
        for cell in range(128):
            row[cell] = i * 1000 + cell
    again = Board(fd)
    for i, name in enumerate(NAMES):
        assert again.row(name).tolist() == [i * 1000 + cell for cell in range(128)]


def test_head_cells_lie_before_the_metrics_and_every_role_fits_into_a_row():
    assert [STATE, PID, RESTARTS, HEARTBEAT, STARTED, DIED] == [0, 1, 2, 3, 4, 7]
    assert board.HEAD_CELLS == FIRST_CELL
    assert max(at + metric.cells for role in METRICS for at, metric in offsets(role).values()) <= 128


def test_a_breadcrumb_holds_every_bit_of_a_uid(fd):
    supervisor, role = Board(fd), Board(fd)
    uid = 2**63 - 1
    role.crumbs("scheduler.0")[1] = uid
    assert supervisor.suspect("scheduler.0") == uid
    assert supervisor.suspect("gateway.0") == supervisor.suspect("detokenizer.1") == 0
    assert role.row("scheduler.0")[:5].tolist() == [0.0] * 5
    assert role.row("scheduler.0")[FIRST_CELL] == 0.0
    supervisor.forget("scheduler.0")
    assert role.crumbs("scheduler.0").tolist() == [0, 0]


def test_what_the_loop_was_at_work_on_is_suspected_before_what_its_thread_was(fd):
    view = Board(fd)
    view.crumbs("gateway.0")[0], view.crumbs("gateway.0")[1] = 7, 8
    assert view.suspect("gateway.0") == 7


def test_a_note_is_cut_to_its_room_and_touches_nothing_else(fd):
    view = Board(fd)
    view.row("gateway.0")[0] = 1.0
    view.set_note("detokenizer.1", "x" * 100)
    view.set_note("scheduler.0", "killed by SIGKILL")
    assert [Board(fd).note(name) for name in NAMES] == ["", "killed by SIGKILL", "x" * 64]
    assert Board(fd).names == NAMES
    assert view.row("gateway.0").tolist() == [1.0] + [0.0] * 127


def test_everybody_reads_that_the_server_drains(fd):
    supervisor, reader = Board(fd), Board(fd)
    assert not reader.draining
    supervisor.set_draining()
    assert reader.draining
    assert reader.names == NAMES


def test_an_unknown_row_is_a_key_error(fd):
    with pytest.raises(KeyError):
        Board(fd).row("executor.9")


def test_closing_unmaps_although_a_row_was_handed_out(fd):
    view = Board(fd)
    row = view.row("gateway.0")
    view.close()
    with pytest.raises(ValueError, match="released"):
        row[0]


@pytest.mark.parametrize(
    ("rows", "columns"),
    [(["a", "a"], 128), (["x" * 65], 128), (["a"], 4), (["a"], 100)],
    ids=["same name twice", "long name", "no room for the head", "not by eights"],
)
def test_an_impossible_board_is_refused(rows, columns):
    with pytest.raises(ValueError, match="board's"):
        Board.create(rows, columns)


def test_other_shared_memory_is_not_a_board():
    fd = memory.create("test", 4096)
    with pytest.raises(ValueError, match="not a board"):
        Board(fd)
    os.close(fd)
