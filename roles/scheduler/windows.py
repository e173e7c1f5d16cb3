"""Groups of layers that look back differently far, over one pool of pages.

Where a model has several groups, a sequence has a page of each for every `page_size` tokens, and lists of
pages go by tokens first, then by group: entry `block * groups + group`. Any page serves any group. A group
with a window of W positions needs the pages of the last W - 1 tokens, and of those being computed; earlier
pages are given back while the sequence runs, and its lists have `NO_PAGE` there, as have those of the prefix
tree. So a known prefix is of use only where its last W - 1 tokens still have pages in every group
(as in vLLM's hybrid KV cache manager and SGLang's sliding-window radix tree).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stretto.roles.scheduler.pages import NO_PAGE, Ints

Counts = npt.NDArray[np.int64]

SLACK = 4
"""Tokens that a window is longer here: a prompt that comes again is matched without its last token, from the
pages of a sequence that is up to two steps past its end."""
LEAST_CHUNK = 256
"""Tokens of a prompt that one step may compute even where the window is shorter."""


class Windows:
    """What the groups need. `sizes`: the window of each group, 0 for none. `budget`: tokens of a step."""

    def __init__(self, sizes: tuple[int, ...], page_size: int, budget: int) -> None:
        self.groups = len(sizes)
        self.chunk = min(budget, max(LEAST_CHUNK, *sizes))
        """Tokens of one sequence that a step may compute, so that few pages are held."""
        self._page_size = page_size
        self._sizes = np.array(sizes, np.int64)
        self._full = sizes.count(0)
        self._bounds = [self._span(size + 2 * self.chunk) for size in sizes if size]
        """Blocks that a sequence holds at most, of each group with a window: two steps are in flight."""
        self._steady = [self._span(size) for size in sizes if size]
        """The same of one that decodes, but for what is in flight."""

    def _span(self, tokens: int) -> int:
        return -(-(tokens + SLACK) // self._page_size) + 1

    def most(self, blocks: int) -> int:
        """Pages that a sequence holds at most until it has so many blocks more."""
        return self._full * blocks + sum(min(blocks, bound) for bound in self._bounds)

    def lacking(self, blocks: Counts, goal: Counts) -> int:
        """Pages that decoding sequences of so many `blocks` need to get to their `goal`, about."""
        missing = self._full * np.maximum(goal - blocks, 0)
        for steady in self._steady:
            missing = missing + np.maximum(np.minimum(goal, steady) - blocks, 0)
        return int(missing.sum())

    def kept_from(self, lengths: Counts) -> Counts:
        """The first block that sequences of these lengths still need, int64 [n, groups]."""
        first = lengths[:, None] - self._sizes + 1 - SLACK
        return np.where(self._sizes > 0, np.maximum(first, 0) // self._page_size, 0)

    def sliding(self, entries: int) -> npt.NDArray[np.bool_]:
        """Which of so many entries of a list of pages belong to groups with a window."""
        return np.resize(self._sizes > 0, entries)

    def trim(self, pages: Ints, length: int) -> Ints:
        """Pages of a prefix, without those that nothing after it looks at; a copy."""
        table = pages.reshape(-1, self.groups).copy()
        for group, size in enumerate(self._sizes.tolist()):
            if size:
                table[: max(length - size + 1, 0) // self._page_size, group] = NO_PAGE
        return table.reshape(-1)

    def usable(self, pages: Ints, length: int, whole: bool = False) -> int:
        """How many of the first `length` tokens, which have these `pages`, a sequence can start after: its
        windows must have their pages. `whole`: only where a page ends.
        """
        size, present = self._page_size, pages.reshape(-1, self.groups) >= 0
        blocks = np.arange(len(present))
        ends = np.minimum((blocks + 1) * size, length)
        good = ends % size == 0 if whole else np.ones(len(ends), bool)
        for group, window in enumerate(self._sizes.tolist()):
            missing = np.maximum.accumulate(np.where(present[:, group], -1, blocks))
            good &= (missing < 0) | (ends - window + 1 >= (missing + 1) * size if window else False)
        return int(ends[good].max(initial=0))
