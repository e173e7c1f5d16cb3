"""KV memory: the page pool, the prefix tree and what lies below as one, since cached and running tokens share
the pages, and what leaves the one goes to the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from stretto.roles.scheduler.keys import Chain
from stretto.roles.scheduler.limits import Limits, pages_for
from stretto.roles.scheduler.pages import Ints, Pool
from stretto.roles.scheduler.radix import Match, Node, Tree
from stretto.roles.scheduler.tiers import Tiers
from stretto.roles.scheduler.windows import Windows


class Placement(NamedTuple):
    """Where a sequence can start: what it reuses and how many pages it needs besides."""

    length: int
    """Tokens whose KV is reused."""
    shared: Ints
    """Cached pages that these tokens fill; there are none where no layer looks at them any more."""
    source: Ints
    """The cached page that they fill in part, one of each group of layers, to be copied; empty when there is
    none."""
    fresh: int
    """Pages it gets: those it lacks, or as many as it needs at once where it gives pages back on its way."""
    node: Node
    keys: Sequence[bytes] = ()
    """Of the whole pages that are reused: first those of `shared`, then those that come from the host, which
    go to the first fresh pages. Empty where there is nothing below the device."""


class Memory:
    """`pool`, `tree` and `tiers` may be read; change them through this class only."""

    def __init__(self, limits: Limits) -> None:
        self._windows = limits.make_windows()
        self._groups = 1 if self._windows is None else self._windows.groups
        self.pool = Pool(limits.pages, holes=self._windows is not None)
        self.tree = Tree(self.pool, limits.page_size, self._leaving, self._windows)
        self.tiers = Tiers(limits.below)
        self.evicted_pages = 0
        """Cached pages given up for want of free ones; whoever counts them sets it to 0."""
        self._page_size = limits.page_size

    @property
    def available(self) -> int:
        """Pages that `take` can give: free ones and cached ones."""
        return self.pool.free + self.pool.cached

    def place(self, tokens: Ints, reusable: int, spare: int, chain: Chain) -> Placement | None:
        """Find room for all of `tokens` that leaves `spare` pages; changes nothing.

        At most `reusable` tokens, less than all, are not computed anew. A partly filled page is not reused
        where the copy would not fit: without it the sequence needs no more pages than it has tokens for.
        """
        match = self.tree.match(tokens[:reusable], chain.salt)
        if self._windows is not None:
            return self._fit_windows(self._windows, match, len(tokens), spare)
        whole, end = match.length // self._page_size, reusable // self._page_size
        if not (self.tiers.enabled and end):
            return self._fit(match, (), len(tokens), spare)
        keys = chain.of(tokens, self._page_size)
        return self._fit(match, keys[: whole + self.tiers.run(keys, whole, end)], len(tokens), spare)

    def origin(self, placement: Placement) -> tuple[int, int]:
        """Of a placement just found: how many tokens come from (host memory alone, disk)."""
        below = placement.keys[len(placement.shared) :]
        disk = self.tiers.read_for(below)
        return (len(below) - disk) * self._page_size, disk * self._page_size

    def occupy(self, placement: Placement) -> Ints:
        """Take the pages of a placement just found, pin its node; returns the block table.

        The source of the copy stays in use until `release` gets it back.
        """
        shared, promoted = placement.keys[: len(placement.shared)], placement.keys[len(placement.shared) :]
        self.tiers.claim(promoted)
        self.tiers.touch(placement.keys)
        self.pool.use(placement.shared)
        self.pool.use(placement.source)
        self.tree.pin(placement.node)
        if self.tiers.below.write == "selective":
            self.tiers.demote(shared, placement.shared)
        fresh = self.take(placement.fresh)
        self.tiers.promote(promoted, fresh[: len(promoted)])
        return np.concatenate([placement.shared, fresh])

    def awaits(self, tokens: Ints, reusable: int, chain: Chain) -> bool:
        """Whether the next page that `place` could use is on its way from the disk."""
        known = self.tree.match(tokens[:reusable], chain.salt).length // self._page_size
        return self.tiers.awaited(chain.of(tokens, self._page_size), known, reusable // self._page_size)

    def prefetch(self, tokens: Ints, reusable: int, chain: Chain) -> None:
        """Begin to bring from the disk what `place` could use of it."""
        if self.tiers.enabled:
            known = self.tree.match(tokens[:reusable], chain.salt).length // self._page_size
            self.tiers.prefetch(chain.of(tokens, self._page_size), known, reusable // self._page_size)

    def take(self, count: int) -> Ints:
        """Get `count` pages, at most `available`, evicting what was used longest ago."""
        cached = self.pool.cached
        while self.pool.free < count:
            # Pinned prefixes come last, but they do come: a lone sequence must be able to use the whole pool.
            if not (self.tree.evict() or self.tree.thin()):
                self.tree.strip()
        self.evicted_pages += cached - self.pool.cached
        pages = self.pool.take(count)
        self.tiers.reuse(pages)
        return pages

    def release(self, pages: Ints) -> None:
        """A sequence or a copy no longer uses these pages."""
        self.pool.drop(pages)

    def keep(self, tokens: Ints, pages: Ints, chain: Chain, returns: bool = False) -> None:
        """Make `tokens`, whose KV is in the first of `pages`, available to others of the same salt.

        `returns`: the sequence was retracted and will need them itself. They go to the host at once, whatever
        the rule, where that is cheaper than to compute them again.
        """
        keys = self._insert(tokens, pages, chain)[1]
        if returns and self.tiers.below.copy_pays:
            self.tiers.swap(keys, pages)
        else:
            self._write_through(keys, pages)

    def discard(self, tokens: Ints, salt: str = "") -> None:
        """Give up what `keep` made available, where nobody uses it and nothing longer is known."""
        self.tree.discard(tokens, salt)

    def repin(self, old: Node, tokens: Ints, pages: Ints, chain: Chain) -> Node:
        """Like `keep`, and move a pin from the `old` node to that of `tokens`."""
        self.tree.unpin(old)  # first, for a pinned leaf is not continued
        new, keys = self._insert(tokens, pages, chain)
        self.tree.pin(new)
        self._write_through(keys, pages)
        return new

    def hurry(self) -> None:
        """Begin to save what would be lost with the memory, for the server stops: what was used last first.

        Under write-back that includes what only the device has.
        """
        if self.tiers.below.write == "back":
            for node in sorted(self.tree, key=lambda node: (node.stamp, -node.start)):
                self.tiers.demote(node.keys, node.pages)
        self.tiers.hurry()

    def _fit(self, match: Match, keys: Sequence[bytes], tokens: int, spare: int) -> Placement | None:
        """The best way to start so many tokens that leaves `spare` pages; `keys` as in `Placement`."""
        total, whole = pages_for(tokens, self._page_size), match.length // self._page_size
        for length, held, used in self._ways(match, keys):
            shared = min(length // self._page_size, whole)
            if total - shared + self.pool.idle(held) + spare <= self.available:
                return Placement(length, held[:shared], held[shared:], total - shared, match.node, used)
        return None

    def _fit_windows(self, windows: Windows, match: Match, tokens: int, spare: int) -> Placement | None:
        """The same where layers have windows: with a page copied, without, and with nothing reused, for
        pages that are shared do not spare those that are needed at once.
        """
        total = pages_for(tokens, self._page_size)
        for length in (match.length, windows.usable(match.pages, match.length, whole=True), 0):
            blocks = length // self._page_size
            pages = windows.trim(match.pages[: self._count(length)], length)
            fresh, whole = windows.most(total - blocks), blocks * self._groups
            if fresh + self.pool.idle(pages) + spare <= self.available:
                return Placement(length, pages[:whole], pages[whole:], fresh, match.node)
        return None

    def _count(self, tokens: int) -> int:
        return pages_for(tokens, self._page_size) * self._groups

    def _ways(self, match: Match, keys: Sequence[bytes]) -> Iterator[tuple[int, Ints, Sequence[bytes]]]:
        """(tokens reused, pages they have, keys): with pages from the host, with a page copied, without."""
        size, whole = self._page_size, match.length // self._page_size
        if len(keys) > whole:
            yield len(keys) * size, match.pages[:whole], keys
        yield match.length, match.pages[: pages_for(match.length, size)], keys[:whole]
        yield whole * size, match.pages[:whole], keys[:whole]

    def _insert(self, tokens: Ints, pages: Ints, chain: Chain) -> tuple[Node, Sequence[bytes]]:
        """Give to the tree; returns where the tokens end in it, and the keys of the whole pages they fill."""
        keys = chain.of(tokens, self._page_size) if self.tiers.enabled else ()
        pages = pages[: self._count(len(tokens))]
        return self.tree.insert(tokens, pages, chain.salt, keys), keys

    def _write_through(self, keys: Sequence[bytes], pages: Ints) -> None:
        if self.tiers.below.write == "through":
            self.tiers.demote(keys, pages)

    def _leaving(self, node: Node) -> None:
        """Save what only the device has of a leaf that is evicted."""
        if self.tiers.below.write != "selective":
            self.tiers.demote(node.keys, node.pages)
