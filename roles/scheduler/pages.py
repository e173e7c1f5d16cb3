"""The page pool: who holds which KV page, by two counts per page.

A page is *used* by running sequences and by copies in flight, *kept* by nodes of the prefix tree. It is
free when nobody does either, *cached* when only the tree keeps it, *owned* when something uses it; so
free + cached + owned = total. Arguments named `pages` are int arrays without repetition; in a pool with
`holes` they may have entries NO_PAGE, which stand for nothing.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]
NO_PAGE = -1


class Pool:
    """`total` pages, numbered from 0. `free` and `cached` are counts."""

    def __init__(self, total: int, holes: bool = False) -> None:
        self.total = total
        self._holes = holes
        self.free = total
        self.cached = 0
        self._used = np.zeros(total, np.int32)
        self._kept = np.zeros(total, np.int32)
        self._stack = np.arange(total - 1, -1, -1, dtype=np.int32)
        """Free pages are `_stack[:free]`; the next to go is the last."""

    @property
    def owned(self) -> int:
        """Pages that something uses."""
        return self.total - self.free - self.cached

    def take(self, count: int) -> Ints:
        """Turn `count` free pages into used ones; there must be that many."""
        if count > self.free:
            raise AssertionError(f"{count} pages taken from {self.free} free ones")
        self.free -= count
        pages = self._stack[self.free : self.free + count][::-1].copy()
        self._used[pages] = 1
        return pages

    def use(self, pages: Ints) -> None:
        """One more user for pages that are cached or in use."""
        pages = self._there(pages)
        self.cached -= self.idle(pages)
        self._used[pages] += 1

    def idle(self, pages: Ints) -> int:
        """How many of these, none of them free, only the tree keeps."""
        pages = self._there(pages)
        return len(pages) - int(np.count_nonzero(self._used[pages]))

    def unused(self, pages: Ints) -> npt.NDArray[np.bool_]:
        """Which of these nobody uses, a hole or not."""
        return self._used[pages] == 0

    def alone(self, pages: Ints) -> int:
        """How many of these have one user only."""
        pages = self._there(pages)
        return int(np.count_nonzero(self._used[pages] == 1))

    def drop(self, pages: Ints) -> None:
        """One user less."""
        pages = self._there(pages)
        self._used[pages] -= 1
        unused = pages[self._used[pages] == 0]
        gone = unused[self._kept[unused] == 0]
        self.cached += len(unused) - len(gone)
        self._push(gone)

    def keep(self, pages: Ints) -> None:
        """One more tree node for pages that are cached or in use."""
        self._kept[self._there(pages)] += 1

    def forget(self, pages: Ints) -> None:
        """One tree node less."""
        pages = self._there(pages)
        self._kept[pages] -= 1
        unkept = pages[self._kept[pages] == 0]
        gone = unkept[self._used[unkept] == 0]
        self.cached -= len(gone)
        self._push(gone)

    def _there(self, pages: Ints) -> Ints:
        return pages[pages >= 0] if self._holes else pages

    def _push(self, pages: Ints) -> None:
        self._stack[self.free : self.free + len(pages)] = pages
        self.free += len(pages)

    def check(self, used: Ints, kept: Ints) -> None:
        """Compare with counts made from scratch, int32[total] each; raises AssertionError."""
        _same("users", self._used, used)
        _same("tree references", self._kept, kept)
        free = np.sort(self._stack[: self.free])
        _same("the free list", free, np.flatnonzero((used == 0) & (kept == 0)))
        cached = int(np.count_nonzero((used == 0) & (kept > 0)))
        if self.cached != cached:
            raise AssertionError(f"{self.cached} pages are said to be cached, {cached} are")


def _same(what: str, have: npt.NDArray[np.integer], want: npt.NDArray[np.integer]) -> None:
    if len(have) != len(want):
        raise AssertionError(f"page pool: {what}: {len(have)} pages, owners make it {len(want)}")
    if len(wrong := np.flatnonzero(have != want)):
        first = wrong[0]
        raise AssertionError(
            f"page pool: {what} differ in {len(wrong)} places; at {first} there is {have[first]}, "
            f"owners make it {want[first]}"
        )
