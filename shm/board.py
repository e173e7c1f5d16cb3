"""The board: one row of float64 cells per process, in shared memory, readable by all at any time.

A row begins with eight head cells; the metrics follow. Every cell has one writer: the supervisor stores
state, pid, restarts and start time, the process itself its heartbeat, breadcrumbs and metrics. A cell is one
aligned 8-byte store (`shm.ring` says why), so nobody sees half a value; between cells there is no order.
Breadcrumbs are cells that hold an int64: a request's uid has more bits than a float64 can tell.

The row's names stand in the memory too: a process needs the descriptor and nothing else.
"""

from __future__ import annotations

from enum import IntEnum

from stretto.shm import memory

STATE, PID, RESTARTS, HEARTBEAT, STARTED = range(5)
DIED = 7
"""Head cells. HEARTBEAT, STARTED and DIED (of the process before this one) are `time.monotonic()` seconds."""
CRUMBS = 2
"""Breadcrumbs of a process, between STARTED and DIED: one for its loop, one for a thread beside it."""
HEAD_CELLS = 8

_MAGIC = int.from_bytes(b"stretboa", "little")
_ROWS, _COLUMNS, _DRAINING = 1, 2, 3
"""Words of the header, after the magic; names follow, then notes as long, then the cells."""
_NAME_BYTES = 64


class State(IntEnum):
    """Where a child is in its life; zero, what a fresh board says, is DOWN."""

    DOWN = 0
    STARTING = 1
    READY = 2
    BACKOFF = 3
    STOPPING = 4
    FATAL = 5
    RETIRING = 6
    """Its successor serves; it finishes what it has."""


class Board:
    """A view of the board. Does not keep `fd`; raises ValueError where that is not a board."""

    def __init__(self, fd: int) -> None:
        self._map = memory.attach(fd)
        with memoryview(self._map) as raw, raw.cast("Q") as words:
            if words[0] != _MAGIC:
                raise ValueError(f"descriptor {fd} is not a board of this version of Stretto")
            rows, columns = words[_ROWS], words[_COLUMNS]
        self.names = [self._name(i) for i in range(rows)]
        """One per row, in order."""
        cells, words = memoryview(self._map).cast("d"), memoryview(self._map).cast("q")
        first = _NAME_BYTES * (1 + 2 * rows) // 8
        self._head = words[: _NAME_BYTES // 8]
        starts = {name: first + i * columns for i, name in enumerate(self.names)}
        self._rows = {name: cells[at : at + columns] for name, at in starts.items()}
        self._crumbs = {name: words[at + STARTED + 1 :][:CRUMBS] for name, at in starts.items()}

    @staticmethod
    def create(rows: list[str], columns: int = 128) -> int:
        """Descriptor of a fresh board, all cells zero. `columns` counts the head cells too, by eights."""
        if columns < HEAD_CELLS or columns % 8:
            raise ValueError(
                f"a board's columns must be a multiple of 8, at least {HEAD_CELLS}, not {columns}"
            )
        if len(set(rows)) < len(rows):
            raise ValueError(f"a board's row names must differ: {rows}")
        names = [name.encode() for name in rows]
        if any(len(name) > _NAME_BYTES for name in names):
            raise ValueError(f"a board's row names must fit into {_NAME_BYTES} bytes: {rows}")
        fd = memory.create("board", _NAME_BYTES * (1 + 2 * len(rows)) + 8 * columns * len(rows))
        with memory.attach(fd) as page, memoryview(page) as raw, raw.cast("Q") as words:
            words[0], words[_ROWS], words[_COLUMNS] = _MAGIC, len(rows), columns
            for i, name in enumerate(names, 1):
                page[i * _NAME_BYTES : i * _NAME_BYTES + len(name)] = name
        return fd

    def _name(self, row: int) -> str:
        at = (row + 1) * _NAME_BYTES
        return self._map[at : at + _NAME_BYTES].rstrip(b"\0").decode()

    def note(self, name: str) -> str:
        """What the supervisor noted of a process; for people to read, as it may be caught half written."""
        at = self._note_at(name)
        return self._map[at : at + _NAME_BYTES].rstrip(b"\0").decode(errors="replace")

    def set_note(self, name: str, text: str) -> None:
        """For the supervisor only; what does not fit into 64 bytes is cut off."""
        at = self._note_at(name)
        self._map[at : at + _NAME_BYTES] = text.encode()[:_NAME_BYTES].ljust(_NAME_BYTES, b"\0")

    def _note_at(self, name: str) -> int:
        return _NAME_BYTES * (1 + len(self.names) + self.names.index(name))

    def row(self, name: str) -> memoryview[float]:
        """The cells of one process, float64, writable. Raises KeyError for a name that has no row."""
        return self._rows[name]

    def crumbs(self, name: str) -> memoryview[int]:
        """What the process is at work on: int64[CRUMBS], writable; a request's uid, or 0 for none."""
        return self._crumbs[name]

    def suspect(self, name: str) -> int:
        """The uid that a dead process was at work on, 0 for none. Its loop's goes before its thread's: work
        on the loop is so short that to die just then is hardly chance."""
        return next((uid for uid in self._crumbs[name] if uid), 0)

    def forget(self, name: str) -> None:
        """Remove a dead process's breadcrumbs."""
        for lane in range(CRUMBS):
            self._crumbs[name][lane] = 0

    def beat(self, name: str, now: float) -> None:
        """Say that the process's own loop turns; `now` is `time.monotonic()`."""
        self._rows[name][HEARTBEAT] = now

    def state(self, name: str) -> State:
        """What the supervisor thinks of the process."""
        return State(int(self._rows[name][STATE]))

    @property
    def draining(self) -> bool:
        """The server takes nothing new and ends when what it has is done."""
        return bool(self._head[_DRAINING])

    def set_draining(self) -> None:
        """For the supervisor only."""
        self._head[_DRAINING] = 1

    def set_state(self, name: str, state: State) -> None:
        """For the supervisor only."""
        self._rows[name][STATE] = state

    def close(self) -> None:
        """Unmap; rows handed out must not be used afterwards."""
        self._head.release()
        for row, crumbs in zip(self._rows.values(), self._crumbs.values(), strict=True):
            row.release()
            crumbs.release()
        self._rows.clear()
        self._crumbs.clear()
        self._map.close()
