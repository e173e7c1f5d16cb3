"""KV memory: the page pool and the prefix tree as one, since cached and running tokens share the pages."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stretto.roles.scheduler.limits import Limits, pages_for
from stretto.roles.scheduler.pages import Ints, Pool
from stretto.roles.scheduler.radix import Node, Tree


class Placement(NamedTuple):
    """Where a sequence can start: what it reuses and how many pages it needs besides."""

    length: int
    """Tokens whose KV is reused."""
    shared: Ints
    """Cached pages that these tokens fill."""
    source: Ints
    """The cached page that they fill in part, to be copied; empty when there is none."""
    fresh: int
    node: Node


class Memory:
    """`pool` and `tree` may be read; change them through this class only."""

    def __init__(self, limits: Limits) -> None:
        self.pool = Pool(limits.pages)
        self.tree = Tree(self.pool, limits.page_size)
        self._page_size = limits.page_size

    @property
    def available(self) -> int:
        """Pages that `take` can give: free ones and cached ones."""
        return self.pool.free + self.pool.cached

    def place(self, tokens: Ints, reusable: int, spare: int, salt: str = "") -> Placement | None:
        """Find room for all of `tokens` that leaves `spare` pages; changes nothing.

        At most `reusable` tokens, less than all, are not computed anew. A partly filled page is not reused
        where the copy would not fit: without it the sequence needs no more pages than it has tokens for.
        """
        match = self.tree.match(tokens[:reusable], salt)
        total = pages_for(len(tokens), self._page_size)
        for length in (match.length, match.length - match.length % self._page_size):
            whole, held = length // self._page_size, match.pages[: pages_for(length, self._page_size)]
            if total - whole + self.pool.idle(held) + spare <= self.available:
                return Placement(length, held[:whole], held[whole:], total - whole, match.node)
        return None

    def occupy(self, placement: Placement) -> Ints:
        """Take the pages of a placement just found, pin its node; returns the block table.

        The source of the copy stays in use until `release` gets it back.
        """
        self.pool.use(placement.shared)
        self.pool.use(placement.source)
        self.tree.pin(placement.node)
        return np.concatenate([placement.shared, self.take(placement.fresh)])

    def take(self, count: int) -> Ints:
        """Get `count` pages, at most `available`, evicting what was used longest ago."""
        while self.pool.free < count:
            # Pinned prefixes come last, but they do come: a lone sequence must be able to use the whole pool.
            if not self.tree.evict():
                self.tree.strip()
        return self.pool.take(count)

    def release(self, pages: Ints) -> None:
        """A sequence or a copy no longer uses these pages."""
        self.pool.drop(pages)

    def keep(self, tokens: Ints, pages: Ints, salt: str = "") -> None:
        """Make `tokens`, whose KV is in the first of `pages`, available to others of the same salt."""
        self.tree.insert(tokens, pages[: pages_for(len(tokens), self._page_size)], salt)

    def discard(self, tokens: Ints, salt: str = "") -> None:
        """Give up what `keep` made available, where nobody uses it and nothing longer is known."""
        self.tree.discard(tokens, salt)

    def repin(self, old: Node, tokens: Ints, pages: Ints, salt: str = "") -> Node:
        """Like `keep`, and move a pin from the `old` node to that of `tokens`."""
        self.tree.unpin(old)  # first, for a pinned leaf is not continued
        new = self.tree.insert(tokens, pages[: pages_for(len(tokens), self._page_size)], salt)
        self.tree.pin(new)
        return new
