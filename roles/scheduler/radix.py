"""The prefix tree: which token sequences have their KV in the pool, and where.

A radix tree with compressed edges over token ids (as in RadixAttention, arXiv:2312.07104), matched to the
token. A node holds the tokens [start, end) of every sequence through it, and keeps the pages
start // P .. ceil(end / P) - 1 (P tokens per page). Where `start` lies inside a page, parent and child each
keep a page for that index: the child's version holds the parent's tokens too, and overrides it.
Only positions before `end` of a page mean anything: a sequence that still runs may be writing after them.
With them it keeps the keys of the pages that end in its edge, where pages have names (`keys`).
A leaf that ends inside a page is continued from that page on instead of getting a child, so that a sequence
that comes back a little longer each time leaves one version of each page.

Where a model's layers have windows (`windows`), there is a page of each group of layers for each index, or
there is none: the tree takes what a sequence still has, and what it lacked itself so far.

Each salt has a root of its own, so that nothing of one is found through another.

Eviction takes the leaf that was used longest ago. A pin protects a node, and with it the way to the root.
Pins are a preference, not a lock on memory: sequences count their pages themselves (`pages.Pool`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import NamedTuple

import numpy as np

from stretto.roles.scheduler.limits import pages_for
from stretto.roles.scheduler.pages import NO_PAGE, Ints, Pool
from stretto.roles.scheduler.windows import Windows

_STALE_ENTRIES = 64
"""Stale entries the eviction heap may hold before it is rebuilt, beyond one per node."""


class Node:
    """An edge of the tree and what hangs below it. The root has no parent, nor has a removed node."""

    __slots__ = ("children", "keys", "pages", "parent", "pins", "stamp", "start", "tokens")

    def __init__(
        self, start: int, tokens: Ints, pages: Ints, keys: Sequence[bytes], parent: Node | None
    ) -> None:
        self.start, self.tokens, self.pages, self.keys, self.parent = start, tokens, pages, keys, parent
        self.children: dict[int, Node] = {}
        """By the first token of the child's edge."""
        self.pins = 0
        self.stamp = 0
        """When it was last used, in uses of the tree."""

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)


class Root(Node):
    """Where the sequences of one salt begin. It is never evicted, and dropped when nothing hangs below it."""

    __slots__ = ("salt",)

    def __init__(self, salt: str) -> None:
        super().__init__(0, _NOTHING, _NOTHING, (), None)
        self.salt = salt


class Match(NamedTuple):
    """The longest known prefix: its length, the pages that hold it, the node in which it ends."""

    length: int
    pages: Ints
    node: Node


class Tree:
    """Prefixes over `pool`. Only `match` and the pins never give pages back.

    `leaving` is called with each leaf that goes for want of memory, before its pages are given back.
    """

    def __init__(
        self,
        pool: Pool,
        page_size: int,
        leaving: Callable[[Node], None] = lambda node: None,
        windows: Windows | None = None,
    ) -> None:
        self._pool, self._page_size, self._leaving = pool, page_size, leaving
        self._windows, self._groups = windows, 1 if windows is None else windows.groups
        self._roots: dict[str, Root] = {}
        """By salt: those that have children."""
        self._nodes = 0
        self._clock = count(1)
        self.uses = 0
        """Of the tree so far: what a node's `stamp` counts."""
        self._tie = count()
        self._heap: list[tuple[int, int, Node]] = []
        """(stamp, tie-break, node) of each unpinned leaf, and stale entries."""

    def match(self, tokens: Ints, salt: str = "") -> Match:
        """Look up `tokens`; changes nothing. The pages stay right until the next eviction."""
        pages = np.empty(self._count(len(tokens)), np.int32)
        node: Node = self._roots.get(salt) or Root(salt)
        at = 0
        while at < len(tokens) and (child := node.children.get(int(tokens[at]))) is not None:
            common = _common(child.tokens, tokens[at:])
            first, last = self._index(at), self._count(at + common)
            pages[first:last] = child.pages[: last - first]
            node, at = child, at + common
            if common < len(child.tokens):
                break
        if self._windows is not None:
            at = self._windows.usable(pages[: self._count(at)], at)
            while node.parent is not None and node.start >= at:
                node = node.parent
        return Match(at, pages[: self._count(at)], node)

    def insert(self, tokens: Ints, pages: Ints, salt: str = "", keys: Sequence[bytes] = ()) -> Node:
        """Make `tokens`, whose KV the `pages` hold, known; returns the node in which they end.

        Pages of what was known before are not taken, as the tree has its own, but for the last one where the
        tokens go on inside of it. `keys` name the whole pages; all sequences have them, or none.
        """
        node: Node = self._roots.get(salt) or Root(salt)
        at = 0
        while at < len(tokens):
            child = node.children.get(int(tokens[at]))
            if child is None:
                if self._continuable(node) and self._whole(node, pages):
                    self._continue(node, tokens, pages, keys)
                else:
                    first = at // self._page_size
                    held = pages[first * self._groups :].copy()
                    node = self._add(node, tokens[at:].copy(), held, keys[first:])
                break
            common = _common(child.tokens, tokens[at:])
            if self._windows is not None:
                self._fill(child, pages, at + common)
            at += common
            inside = common < len(child.tokens) and at < len(tokens)
            node = self._split(child, common) if inside else child
        self._touch(node)
        self._offer(node)
        return node

    def pin(self, node: Node) -> None:
        """Protect the node and its ancestors from `evict`."""
        node.pins += 1
        self._touch(node)

    def unpin(self, node: Node) -> None:
        """Undo one `pin`."""
        node.pins -= 1
        self._offer(node)

    def evict(self) -> bool:
        """Remove the unpinned leaf that was used longest ago; False when there is none."""
        while self._heap:
            stamp, _, node = heapq.heappop(self._heap)
            if stamp == node.stamp and _evictable(node):
                self._leaving(node)
                self._remove(node)
                return True
        return False

    def discard(self, tokens: Ints, salt: str = "") -> None:
        """Remove the leaf in which `tokens` end, where nothing protects it and nothing comes after them."""
        match = self.match(tokens, salt)
        if match.length == len(tokens) == match.node.end and _evictable(match.node):
            self._remove(match.node)

    def uproot(self, node: Node) -> None:
        """Remove a node that nobody is to use, and what only leads to it."""
        while _evictable(node):
            parent = node.parent
            self._remove(node)
            assert parent is not None
            node = parent

    def thin(self) -> bool:
        """Give back pages of groups with windows that nothing uses; False where there are none. What is known
        stays known, and is of use where a window's pages are left.
        """
        if self._windows is None:
            return False
        thinned = False
        for node in self._walk():
            idle = (node.pages >= 0) & self._windows.sliding(len(node.pages)) & self._pool.unused(node.pages)
            self._pool.forget(node.pages[idle])
            node.pages[idle] = NO_PAGE
            thinned |= bool(idle.any())
        return thinned

    def strip(self) -> None:
        """Remove every leaf, pinned or not."""
        leaves = [node for node in self._walk() if not node.children]
        if not leaves:
            raise AssertionError("the prefix tree is empty: it holds no page that could be given back")
        for node in leaves:
            self._leaving(node)
            self._remove(node)

    def _add(self, parent: Node, tokens: Ints, pages: Ints, keys: Sequence[bytes]) -> Node:
        if isinstance(parent, Root):
            self._roots[parent.salt] = parent
        node = Node(parent.end, tokens, pages, keys, parent)
        parent.children[int(tokens[0])] = node
        self._pool.keep(pages)
        self._nodes += 1
        return node

    def _continuable(self, node: Node) -> bool:
        return _evictable(node) and node.end % self._page_size > 0

    def _whole(self, leaf: Node, pages: Ints) -> bool:
        """Whether there is a page in place of the leaf's last."""
        at = self._index(leaf.end)
        return self._windows is None or bool((pages[at : at + self._groups] >= 0).all())

    def _fill(self, node: Node, pages: Ints, end: int) -> None:
        """Take pages that the node lacks from a sequence that has its first tokens, up to `end`."""
        last = self._count(end) if end == node.end else self._index(end)
        own, theirs = node.pages[: last - self._index(node.start)], pages[self._index(node.start) : last]
        missing = (own < 0) & (theirs >= 0)
        own[missing] = theirs[missing]
        self._pool.keep(own[missing])

    def _index(self, position: int) -> int:
        """Where in a list of pages those are that hold the position."""
        return position // self._page_size * self._groups

    def _count(self, tokens: int) -> int:
        """Pages of so many tokens."""
        return pages_for(tokens, self._page_size) * self._groups

    def _continue(self, leaf: Node, tokens: Ints, pages: Ints, keys: Sequence[bytes]) -> None:
        """Replace the leaf's last page, and put more tokens and pages after it."""
        whole = leaf.end - leaf.end % self._page_size
        if leaf.start < whole:
            self._split(leaf, whole - leaf.start)  # the pages before the last are evicted by themselves
        old, first = leaf.pages, leaf.start // self._page_size
        leaf.tokens = tokens[leaf.start :].copy()
        leaf.pages, leaf.keys = pages[first * self._groups :].copy(), keys[first:]
        self._pool.keep(leaf.pages)
        self._pool.forget(old)

    def _split(self, node: Node, length: int) -> Node:
        """Give the first `length` tokens of the edge to a new parent; `node` and its pins stay below it."""
        middle = node.start + length
        first, last = node.start // self._page_size, pages_for(middle, self._page_size)
        inside = middle // self._page_size - first  # so many pages end in the upper edge
        upper = Node(
            node.start,
            node.tokens[:length].copy(),
            node.pages[: (last - first) * self._groups].copy(),
            node.keys[:inside],
            node.parent,
        )
        assert node.parent is not None
        node.parent.children[int(upper.tokens[0])] = upper
        upper.children[int(node.tokens[length])] = node
        upper.stamp = node.stamp
        node.pages, node.keys = node.pages[inside * self._groups :].copy(), node.keys[inside:]
        node.tokens, node.start, node.parent = node.tokens[length:].copy(), middle, upper
        if middle % self._page_size:
            self._pool.keep(node.pages[: self._groups])
        self._nodes += 1
        return upper

    def _remove(self, node: Node) -> None:
        parent = node.parent
        assert parent is not None
        del parent.children[int(node.tokens[0])]
        node.parent = None
        self._pool.forget(node.pages)
        self._nodes -= 1
        if isinstance(parent, Root) and not parent.children:
            del self._roots[parent.salt]
        self._offer(parent)

    def _touch(self, node: Node) -> None:
        self.uses = stamp = next(self._clock)
        at: Node | None = node
        while at is not None:
            at.stamp, at = stamp, at.parent

    def _offer(self, node: Node) -> None:
        if not _evictable(node):
            return
        if len(self._heap) > _STALE_ENTRIES + 2 * self._nodes:
            self._heap = [
                entry for entry in self._heap if entry[0] == entry[2].stamp and _evictable(entry[2])
            ]
            heapq.heapify(self._heap)
        heapq.heappush(self._heap, (node.stamp, next(self._tie), node))

    def _walk(self) -> Iterator[Node]:
        stack = [child for root in self._roots.values() for child in root.children.values()]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    def __iter__(self) -> Iterator[Node]:
        """Every node but the roots."""
        return self._walk()

    @property
    def salts(self) -> int:
        """How many salts have anything here."""
        return len(self._roots)

    def check(self, pins: dict[int, int]) -> Ints:
        """Verify the shape; `pins` has the expected pins by `id(node)`. Returns tree references per page.

        Raises AssertionError.
        """
        kept = np.zeros(self._pool.total, np.int32)
        nodes = list(self._walk())
        offered = {id(node) for stamp, _, node in self._heap if stamp == node.stamp}
        for node in nodes:
            _check_node(node, self._page_size, self._groups, pins.get(id(node), 0))
            if _evictable(node) and id(node) not in offered:
                raise AssertionError(f"the unpinned leaf [{node.start}, {node.end}) can never be evicted")
            kept[node.pages[node.pages >= 0]] += 1
        for salt, root in self._roots.items():
            if root.salt != salt or not root.children:
                raise AssertionError(f"the root of salt {salt!r} is empty, or another's: {root.salt!r}")
        if len(nodes) != self._nodes:
            raise AssertionError(f"the prefix tree counts {self._nodes} nodes and has {len(nodes)}")
        return kept


_NOTHING = np.empty(0, np.int32)


def _common(edge: Ints, tokens: Ints) -> int:
    """Length of the common prefix."""
    size = min(len(edge), len(tokens))
    differs = edge[:size] != tokens[:size]
    first = int(differs.argmax())
    return first if differs[first] else size


def _evictable(node: Node) -> bool:
    return not node.pins and not node.children and node.parent is not None


def _check_node(node: Node, page_size: int, groups: int, pins: int) -> None:
    where = f"node [{node.start}, {node.end}) of the prefix tree"
    parent = node.parent
    if parent is None or parent.end != node.start or parent.children.get(int(node.tokens[0])) is not node:
        raise AssertionError(f"{where} does not follow its parent")
    if not len(node.tokens):
        raise AssertionError(f"{where} has an empty edge")
    if len(node.pages) != groups * (pages_for(node.end, page_size) - node.start // page_size):
        raise AssertionError(f"{where} has {len(node.pages)} pages")
    if len(node.keys) not in (0, node.end // page_size - node.start // page_size):
        raise AssertionError(f"{where} has {len(node.keys)} keys")
    held = node.pages[node.pages >= 0]
    if len(np.unique(held)) != len(held):
        raise AssertionError(f"{where} has a page twice: {node.pages.tolist()}")
    if node.pins != pins:
        raise AssertionError(f"{where} has {node.pins} pins, running sequences make it {pins}")
    if parent.stamp < node.stamp:
        raise AssertionError(f"{where} was used after its parent")
