"""What is known to lie below the device, and the moves between the tiers.

Below the radix tree, which is exact to the token, whole pages are found by their keys (`keys`): a page that
left the device needs no node any more, and the same key names it in host memory and in the file store. Host
pages are given away in the order of their last use; within one sequence the later page goes first, for
without its prefix it is of no use.

The scheduler decides and the executor moves (`messages.Move`). A move between device and host counts as done
as soon as it is asked for, because the executor does such moves in order and a plan names the last one that
it depends on. Only the disk is waited for: pages that it reads or writes are held until it has answered.
The design follows HiCache (https://lmsys.org/blog/2025-09-10-sglang-hicache/).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from stretto.roles import messages as m
from stretto.roles.scheduler.below import Below
from stretto.roles.scheduler.keys import split_keys
from stretto.roles.scheduler.pages import Ints
from stretto.roles.scheduler.tiers_counts import TierCounts

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


class Tiers:
    """Host memory and the file store of one executor; everything here is void when it dies."""

    def __init__(self, below: Below) -> None:
        self.below = below
        self._host: OrderedDict[bytes, int] = OrderedDict()
        """Host page by key, the one used longest ago first."""
        self._free = list(range(below.host_pages - 1, -1, -1))
        self._claimed: set[bytes] = set()
        """Keys on the host that are about to be promoted."""
        self._saving: set[bytes] = set()
        """Keys on the host that the disk is writing."""
        self._unsaved: dict[bytes, None] = {}
        """Keys on the host that are to be written, in order."""
        self._loading: set[bytes] = set()
        self._loaded: set[bytes] = set()
        """Keys on the host that came from the disk and have not been used since."""
        self._load_seconds = 0.0
        """From the disk, per page: a running mean of what was measured."""
        self._shelf: set[bytes] = set()
        """Keys that the file store says it has."""
        self._disk_moves: dict[int, DiskMove] = {}
        self._leaving: dict[int, int] = {}
        """Device pages with the number of the last move that reads them."""
        self._number = 0
        self._after = 0
        self._moves: list[m.Move] = []
        self.counts = TierCounts()

    @property
    def enabled(self) -> bool:
        """Whether there is anything below the device."""
        return self.below.host_pages > 0

    @property
    def busy(self) -> bool:
        """Whether pages are on their way from the disk."""
        return bool(self._loading)

    @property
    def sizes(self) -> tuple[int, int]:
        """Pages that (the host, the file store) hold."""
        return len(self._host), len(self._shelf)

    def take_counts(self) -> TierCounts:
        """What happened since the last call."""
        counts, self.counts = self.counts, TierCounts()
        return counts

    # What a sequence can get from here. `keys` are those of its pages from its first one on.

    def run(self, keys: Sequence[bytes], first: int, end: int) -> int:
        """How many of the pages [first, end) in a row are on the host and worth a copy."""
        if not self.below.copy_pays:
            return 0
        at = first
        while at < end and keys[at] in self._host:
            at += 1
        return at - first

    def awaited(self, keys: Sequence[bytes], first: int, end: int) -> bool:
        """Whether the first page in [first, end) that is not on the host is on its way there."""
        at = first + self.run(keys, first, end)
        return at < end and keys[at] in self._loading

    def prefetch(self, keys: Sequence[bytes], first: int, end: int) -> None:
        """Begin to load those of the pages [first, end) in a row that only the disk has."""
        if not self._shelf or not self._load_pays():
            return
        wanted = []
        for key in keys[first : min(end, first + self.below.host_pages // 2)]:
            if key in self._host:
                self._host.move_to_end(key)
            elif key in self._shelf and key not in self._loading:
                wanted.append(key)
            elif key not in self._loading:
                break
        for start in range(0, len(wanted), DISK_BATCH):
            if not self._load(wanted[start : start + DISK_BATCH]):
                return

    def _load_pays(self) -> bool:
        """Whether the disk is faster than computing; one that was slow once is tried again later."""
        pays = self._load_seconds + self.below.copy_seconds < self.below.compute_seconds
        if not pays:
            self._load_seconds *= SLOW_DISK_DECAY
        return pays

    def _load(self, keys: list[bytes]) -> bool:
        pages = self._take(len(keys))
        if pages:
            found = keys[: len(pages)]
            self._loading.update(found)
            number = self._move("load", pages, keys=b"".join(found))
            self._disk_moves[number] = DiskMove("load", found, pages)
        return len(pages) == len(keys)

    # Between device and host.

    def claim(self, keys: Sequence[bytes]) -> None:
        """Keep these until `promote`."""
        self._claimed.update(keys)

    def promote(self, keys: Sequence[bytes], device: Ints) -> None:
        """Copy the pages of `keys`, all on the host, to these device pages before the next plan computes."""
        self._claimed.difference_update(keys)
        if not keys:
            return
        self._after = self._move("in", [self._host[key] for key in keys], device)
        disk = self._loaded.intersection(keys)
        self._loaded -= disk
        self.counts.promoted_pages += len(keys)
        self.counts.disk_hit_pages += len(disk)
        self.counts.host_hit_pages += len(keys) - len(disk)

    def touch(self, keys: Sequence[bytes]) -> None:
        """These have been used, wherever they are."""
        for key in reversed(keys):
            if key in self._host:
                self._host.move_to_end(key)

    def demote(self, keys: Sequence[bytes], device: Ints) -> int:
        """Copy whole device pages to the host where it does not have them; returns how many."""
        if not self.enabled:
            return 0
        self.touch(keys)
        fresh = [at for at, key in enumerate(keys) if key not in self._host and key not in self._loading]
        fresh = fresh[: self.below.host_pages]
        pages = self._take(len(fresh))
        fresh = fresh[: len(pages)]
        if fresh:
            number = self._move("out", pages, device[fresh])
            self._leaving.update(dict.fromkeys(device[fresh].tolist(), number))
            for at, page in zip(reversed(fresh), reversed(pages), strict=True):
                self._put(keys[at], page)
            self.counts.demoted_pages += len(fresh)
        return len(fresh)

    def reuse(self, device: Ints) -> None:
        """These device pages are about to be overwritten, by the next plan or by a promotion."""
        if self._leaving:
            last = max((self._leaving.pop(page, 0) for page in device.tolist()), default=0)
            self._after = max(self._after, last)

    def take_after(self) -> int:
        """The move that the plan now made must wait for, 0 for none."""
        after, self._after = self._after, 0
        return after

    def _put(self, key: bytes, page: int) -> None:
        self._host[key] = page
        if self.below.disk and key not in self._shelf:
            self._unsaved[key] = None

    def _take(self, count: int) -> list[int]:
        """Host pages to be filled: at most so many, free ones first, then those used longest ago."""
        pages = [self._free.pop() for _ in range(min(count, len(self._free)))]
        if len(pages) < count:
            held = self._saving | self._claimed
            victims = [key for key, _ in zip(self._host, range(count + len(held)), strict=False)]
            for key in [key for key in victims if key not in held][: count - len(pages)]:
                pages.append(self._drop(key))
                self.counts.host_evicted_pages += 1
        return pages

    def _drop(self, key: bytes) -> int:
        self._unsaved.pop(key, None)
        self._loaded.discard(key)
        return self._host.pop(key)

    def flush(self) -> None:
        """Give up all that is on the host, but what the disk is writing, and know nothing of the disk.

        Its files stay: the next executor tells of them again.
        """
        for key in [key for key in self._host if key not in self._saving]:
            self._free.append(self._drop(key))
        self._shelf.clear()

    # Messages.

    def take_moves(self) -> list[m.Move]:
        """What to send since the last call, before the next plan."""
        if self._unsaved:
            self._save()
        moves, self._moves = self._moves, []
        return moves

    def _save(self) -> None:
        lazy = self.below.write == "back" and BACK_RESERVE * len(self._free) >= self.below.host_pages
        while self._unsaved and not lazy and len(self._saving) < SAVES_IN_FLIGHT:
            keys = [key for key, _ in zip(self._unsaved, range(DISK_BATCH), strict=False)]
            pages = [self._host[key] for key in keys]
            for key in keys:
                del self._unsaved[key]
            self._saving.update(keys)
            number = self._move("save", pages, keys=b"".join(keys))
            self._disk_moves[number] = DiskMove("save", keys, pages)

    def _move(
        self,
        kind: Literal["out", "in", "save", "load"],
        host: Sequence[int],
        device: Ints | None = None,
        keys: bytes = b"",
    ) -> int:
        self._number += 1
        pages = b"" if device is None else device.astype(np.int32).tobytes()
        self._moves.append(m.Move(self._number, kind, np.array(host, np.int32).tobytes(), pages, keys))
        return self._number

    def moved(self, answer: m.Moved) -> bool:
        """A move is over; whether it was a load. Raises RuntimeError for one that was never asked for."""
        if not 0 < answer.number <= self._number:
            raise RuntimeError(f"the executor answers move {answer.number}, the last one was {self._number}")
        move = self._disk_moves.pop(answer.number, None)
        if move is None:
            self._leaving = {page: n for page, n in self._leaving.items() if n > answer.number}
            return False
        for key, page, ok in zip(move.keys, move.pages, answer.ok, strict=True):
            if move.kind == "save":
                self._saving.remove(key)
                if ok:
                    self._shelf.add(key)
            else:
                self._land(key, page, bool(ok))
        if move.kind == "load":
            self._load_seconds += (answer.seconds / len(move.keys) - self._load_seconds) / 4
        return move.kind == "load"

    def _land(self, key: bytes, page: int, ok: bool) -> None:
        """A page was loaded, or could not be."""
        self._loading.remove(key)
        if ok:
            self._host[key] = page
            self._loaded.add(key)
        else:
            self._shelf.discard(key)
            self._free.append(page)

    def shelved(self, news: m.Shelved) -> None:
        """What the file store has gained and lost."""
        self._shelf.update(split_keys(news.added))
        self._shelf.difference_update(split_keys(news.gone))

    def check(self) -> None:
        """Verify the invariants; raises AssertionError."""
        loading = [page for move in self._disk_moves.values() if move.kind == "load" for page in move.pages]
        pages = sorted([*self._free, *self._host.values(), *loading])
        if pages != list(range(self.below.host_pages)):
            raise AssertionError(f"host pages are lost or twice there: {pages}")
        _within("being saved", self._saving, self._host)
        _within("to be saved", self._unsaved, self._host)
        _within("freshly loaded", self._loaded, self._host)
        if self._claimed:
            raise AssertionError(f"{len(self._claimed)} host pages are claimed and were not promoted")
        if self._loading & self._host.keys():
            raise AssertionError("a page is on the host and being loaded")


def _within(what: str, keys: Iterable[bytes], host: OrderedDict[bytes, int]) -> None:
    if lost := [key.hex() for key in keys if key not in host]:
        raise AssertionError(f"pages said to be {what} are not on the host: {lost}")
