"""Pretended memory below the pretended device: pages as lists of cells, moved as late or early as allowed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from stretto.roles import messages as m
from stretto.roles.scheduler.below import Below
from stretto.roles.scheduler.keys import split_keys

Page = list[tuple[int, int] | None]


class Lower:
    """Does moves and answers them through `tell`; raises AssertionError for a move that makes no sense.

    `disk` outlives it, and holds `capacity` pages.
    """

    def __init__(
        self,
        cells: list[Page],
        below: Below,
        disk: dict[bytes, Page],
        tell: Callable[[m.Moved | m.Shelved], None],
        capacity: int,
    ) -> None:
        self.cells, self.disk, self.tell, self.capacity = cells, disk, tell, capacity
        self.host: list[Page | None] = [None] * below.host_pages
        self.transfers: deque[m.Move] = deque()
        self.disk_moves: list[m.Move] = []
        self.done: list[m.Move] = []
        self.number = 0

    def introduce(self) -> None:
        """Tell the core what the disk has."""
        self.tell(m.Shelved(added=b"".join(self.disk)))

    def give(self, moves: list[m.Move]) -> None:
        """What the core wants."""
        for move in moves:
            self.number += 1
            assert move.number == self.number
            (self.transfers if move.kind in ("out", "in") else self.disk_moves).append(move)

    def before(self, number: int) -> None:
        """Do transfers as far as this move."""
        assert number <= self.number
        while self.transfers and self.transfers[0].number <= number:
            self.transfer()

    def transfer(self) -> None:
        """Do the oldest transfer."""
        move = self.transfers.popleft()
        device, host = (np.frombuffer(data, np.int32).tolist() for data in (move.device, move.host))
        assert len(device) == len(host) == len(set(host))
        for there, here in zip(device, host, strict=True):
            if move.kind == "out":
                assert None not in self.cells[there]
                self.host[here] = list(self.cells[there])
            else:
                page = self.host[here]
                assert page is not None
                self.cells[there] = list(page)
        self._answer(move, [True] * len(host))

    def answer(self, pick: int, fails: bool) -> None:
        """Do one of the disk's moves, after the transfers before it."""
        move = self.disk_moves.pop(pick % len(self.disk_moves))
        self.before(move.number)
        act = self._save if move.kind == "save" else self._load
        pages = np.frombuffer(move.host, np.int32).tolist()
        gone: list[bytes] = []
        ok = [
            not fails and act(key, page, gone) for key, page in zip(split_keys(move.keys), pages, strict=True)
        ]
        self._answer(move, ok)
        if gone:
            self.tell(m.Shelved(gone=b"".join(gone)))

    def _save(self, key: bytes, page: int, gone: list[bytes]) -> bool:
        content = self.host[page]
        assert content is not None
        assert self.disk.setdefault(key, content) == content, "one key, two contents"
        if len(self.disk) > self.capacity:
            oldest = next(iter(self.disk))
            del self.disk[oldest]
            gone.append(oldest)
        return key in self.disk

    def _load(self, key: bytes, page: int, gone: list[bytes]) -> bool:
        self.host[page] = self.disk.get(key)
        return key in self.disk

    def _answer(self, move: m.Move, ok: list[bool]) -> None:
        self.done.append(move)
        self.tell(m.Moved(move.number, bytes(ok), 0.0))
