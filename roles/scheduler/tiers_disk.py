"""What the file store has, and the moves to and from it.

Pages that the disk reads or writes are held until it has answered. A page is written once; under write-back
no sooner than host memory is nearly full, or the server stops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

from stretto.roles import messages as m
from stretto.roles.scheduler.below import Below
from stretto.roles.scheduler.keys import split_keys
from stretto.roles.scheduler.moves import Moves
from stretto.roles.scheduler.tiers_host import HostPages

DISK_BATCH = 8
"""Pages of one move to or from the disk: a request waits for its pages in parts, reads overtake writes."""
SAVES_IN_FLIGHT = 32
"""Pages that wait to be written at most: they cannot be given away meanwhile."""
BACK_RESERVE = 4
"""Under write-back, pages go to disk once less than one in so many host pages is free."""
SLOW_DISK_DECAY = 0.9
"""By so much a disk that is too slow is thought to recover with each request that might have used it."""


class DiskMove(NamedTuple):
    """A save or a load that is not answered yet."""

    kind: Literal["save", "load"]
    keys: list[bytes]
    pages: list[int]


class Disk:
    """The file store below `host`; void, but for its files, when the executor dies."""

    def __init__(self, below: Below, host: HostPages, moves: Moves) -> None:
        self._below, self._host, self._moves = below, host, moves
        self._shelf: set[bytes] = set()
        """Keys that the file store says it has."""
        self._unsaved: dict[bytes, None] = {}
        """Keys on the host that are to be written, in order."""
        self._saving: set[bytes] = set()
        """Keys on the host that are being written."""
        self._loading: set[bytes] = set()
        self._loaded: set[bytes] = set()
        """Keys on the host that came from the disk and have not been used since."""
        self._load_seconds = 0.0
        """Per page: a running mean of what was measured."""
        self._lazy = below.write == "back"
        self._unanswered: dict[int, DiskMove] = {}

    def __len__(self) -> int:
        return len(self._shelf)

    @property
    def loading(self) -> set[bytes]:
        """Keys that are on their way to the host."""
        return self._loading

    @property
    def unsaved(self) -> int:
        """Pages that are on the host, wanted on the disk and not known to be there."""
        return len(self._unsaved) + len(self._saving)

    # To the disk.

    def offer(self, key: bytes) -> None:
        """A page has come to the host from the device."""
        if self._below.disk and key not in self._shelf:
            self._unsaved[key] = None

    def forget(self, key: bytes) -> None:
        """A page leaves the host."""
        self._unsaved.pop(key, None)
        self._loaded.discard(key)

    def hurry(self) -> None:
        """Save all there is from now on, what was used last first."""
        self._lazy = False
        self._unsaved = {key: None for key in self._host.newest() if key in self._unsaved}

    def save(self) -> None:
        """Begin to write what is due."""
        if self._lazy and BACK_RESERVE * self._host.free >= self._host.count:
            return
        while self._unsaved and len(self._saving) < SAVES_IN_FLIGHT:
            keys = [key for key, _ in zip(self._unsaved, range(DISK_BATCH), strict=False)]
            for key in keys:
                del self._unsaved[key]
            self._saving.update(keys)
            self._host.hold(keys)
            self._ask("save", keys, [self._host[key] for key in keys])

    # From the disk.

    def prefetch(self, keys: Sequence[bytes]) -> None:
        """Begin to load those of these pages in a row that only the disk has."""
        if not self._shelf or not self._pays():
            return
        wanted = self._wanted(keys[: self._host.count // 2])
        for start in range(0, len(wanted), DISK_BATCH):
            part = wanted[start : start + DISK_BATCH]
            pages = self._host.take(len(part))
            if pages:
                self._loading.update(part[: len(pages)])
                self._ask("load", part[: len(pages)], pages)
            if len(pages) < len(part):
                return

    def _wanted(self, keys: Sequence[bytes]) -> list[bytes]:
        wanted = []
        for key in keys:
            if key in self._host:
                self._host.touch([key])
            elif key in self._loading:
                continue
            elif key in self._shelf:
                wanted.append(key)
            else:
                break
        return wanted

    def _pays(self) -> bool:
        """Whether the disk is faster than computing; one that was slow once is tried again later."""
        pays = self._load_seconds + self._below.copy_seconds < self._below.compute_seconds
        if not pays:
            self._load_seconds *= SLOW_DISK_DECAY
        return pays

    def fresh(self, keys: Sequence[bytes]) -> int:
        """How many of these were loaded and have not been used since."""
        return len(self._loaded.intersection(keys)) if self._loaded else 0

    def use(self, keys: Sequence[bytes]) -> None:
        """These go to the device."""
        self._loaded.difference_update(keys)

    # Answers.

    def _ask(self, kind: Literal["save", "load"], keys: list[bytes], pages: list[int]) -> None:
        number = self._moves.add(kind, pages, keys=b"".join(keys))
        self._unanswered[number] = DiskMove(kind, keys, pages)

    def answered(self, answer: m.Moved) -> Literal["save", "load"] | None:
        """A move is over: of which kind it was, None for one that was not the disk's."""
        move = self._unanswered.pop(answer.number, None)
        if move is None:
            return None
        for key, page, ok in zip(move.keys, move.pages, answer.ok, strict=True):
            if move.kind == "save":
                self._saved(key, bool(ok))
            else:
                self._land(key, page, bool(ok))
        if move.kind == "load":
            self._load_seconds += (answer.seconds / len(move.keys) - self._load_seconds) / 4
        return move.kind

    def _saved(self, key: bytes, ok: bool) -> None:
        self._saving.remove(key)
        self._host.let_go([key])
        if ok:
            self._shelf.add(key)

    def _land(self, key: bytes, page: int, ok: bool) -> None:
        """A page was loaded, or could not be."""
        self._loading.remove(key)
        if ok:
            self._host.put(key, page)
            self._loaded.add(key)
        else:
            self._shelf.discard(key)
            self._host.give_back(page)

    def shelved(self, news: m.Shelved) -> None:
        """What the file store has gained and lost."""
        self._shelf.update(split_keys(news.added))
        self._shelf.difference_update(split_keys(news.gone))

    def clear(self) -> None:
        """Know nothing of the files any more; they stay, and the next executor tells of them again."""
        self._shelf.clear()

    def check(self) -> tuple[list[int], Counter[bytes]]:
        """Verify the invariants; raises AssertionError. Returns the host pages that are being filled, and
        the keys that are held."""
        for what, keys in (("to be saved", self._unsaved), ("freshly loaded", self._loaded)):
            if lost := [key.hex() for key in keys if key not in self._host]:
                raise AssertionError(f"pages said to be {what} are not on the host: {lost}")
        if any(key in self._host for key in self._loading):
            raise AssertionError("a page is on the host and being loaded")
        moves = self._unanswered.values()
        filling = [page for move in moves if move.kind == "load" for page in move.pages]
        return filling, Counter(self._saving)
