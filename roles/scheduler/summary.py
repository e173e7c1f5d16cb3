"""What the prefix tree holds, in numbers: never a token of it."""

from __future__ import annotations

import heapq

from stretto.roles import messages as m
from stretto.roles.scheduler.memory import Memory
from stretto.roles.scheduler.radix import Node

LARGEST = 10
"""Prefixes that a summary lists."""


def summarize(memory: Memory) -> m.CacheSummary:
    """Takes a look at every node: some milliseconds for a million tokens in prompts of a thousand."""
    nodes = list(memory.tree)
    pool, now = memory.pool, memory.tree.uses
    return m.CacheSummary(
        tokens=sum(len(node.tokens) for node in nodes),
        nodes=len(nodes),
        salts=memory.tree.salts,
        pages_free=pool.free,
        pages_cached=pool.cached,
        pages_owned=pool.owned,
        largest=[_prefix(node, now) for node in heapq.nlargest(LARGEST, nodes, key=lambda n: len(n.tokens))],
    )


def flush(memory: Memory) -> int:
    """Drop all that nobody uses, here and below; returns how many tokens of the tree that were."""
    before = _tokens(memory)
    while memory.tree.evict():
        pass
    memory.tiers.flush()
    return before - _tokens(memory)


def _tokens(memory: Memory) -> int:
    return sum(len(node.tokens) for node in memory.tree)


def _prefix(node: Node, now: int) -> m.CachedPrefix:
    return m.CachedPrefix(
        start=node.start,
        tokens=len(node.tokens),
        running=node.pins,
        continuations=len(node.children),
        uses_ago=now - node.stamp,
    )
