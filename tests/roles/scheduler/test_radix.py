"""The prefix tree by itself: what it finds, what it keeps, what it evicts."""

from __future__ import annotations

from itertools import takewhile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stretto.roles.scheduler.keys import page_keys
from stretto.roles.scheduler.pages import NO_PAGE, Ints, Pool
from stretto.roles.scheduler.radix import Match, Tree
from stretto.roles.scheduler.windows import Windows


def array(values: list[int]) -> Ints:
    return np.array(values, np.int32)


class Forest:
    """A tree, its pool, and a way to insert sequences that have ended."""

    def __init__(self, pages: int = 32, page_size: int = 4) -> None:
        self.pool = Pool(pages)
        self.tree = Tree(self.pool, page_size)
        self.page_size = page_size

    def add(self, tokens: list[int]) -> list[int]:
        """Insert with fresh pages, which the sequence then lets go; returns them."""
        pages = self.pool.take(-(-len(tokens) // self.page_size))
        self.tree.insert(array(tokens), pages)
        self.pool.drop(pages)
        return pages.tolist()

    def find(self, tokens: list[int]) -> tuple[int, list[int]]:
        match: Match = self.tree.match(array(tokens))
        return match.length, match.pages.tolist()

    def check(self) -> None:
        self.pool.check(np.zeros(self.pool.total, np.int32), self.tree.check({}))


def test_an_empty_tree_knows_nothing() -> None:
    assert Forest().find([1, 2, 3]) == (0, [])


def test_a_match_ends_at_the_token_where_sequences_part() -> None:
    forest = Forest()
    pages = forest.add([1, 2, 3, 4, 5, 6])
    assert forest.find([1, 2, 3, 4, 5, 6, 7]) == (6, pages)
    assert forest.find([1, 2, 3, 4, 5, 9]) == (5, pages)
    assert forest.find([1, 2, 3, 4]) == (4, pages[:1])
    assert forest.find([1, 9]) == (1, pages[:1])
    assert forest.find([9]) == (0, [])


def test_each_branch_has_its_own_version_of_the_page_it_parts_in() -> None:
    forest = Forest()
    left = forest.add([1, 2, 3, 4, 5, 6, 7, 8])
    right = forest.add([1, 2, 3, 4, 5, 9, 9, 9])
    assert forest.find([1, 2, 3, 4, 5, 6, 7, 8]) == (8, left)
    assert forest.find([1, 2, 3, 4, 5, 9, 9, 9]) == (8, [left[0], right[1]])
    assert forest.find([1, 2, 3, 4, 5, 0]) == (5, left)
    forest.check()


def test_pages_of_a_known_prefix_are_given_back() -> None:
    forest = Forest(pages=8)
    forest.add([1, 2, 3, 4, 5, 6, 7, 8])
    forest.add([1, 2, 3, 4, 5, 6, 7, 8])
    assert (forest.pool.free, forest.pool.cached) == (6, 2)
    forest.add([1, 2, 3, 4, 5, 6, 7, 8, 9])
    assert (forest.pool.free, forest.pool.cached) == (5, 3)
    forest.check()


def test_a_prefix_of_an_edge_needs_no_node() -> None:
    forest = Forest(pages=8)
    pages = forest.add([1, 2, 3, 4, 5, 6, 7, 8])
    forest.add([1, 2, 3])
    assert forest.find([1, 2, 3, 4, 5, 6, 7, 8]) == (8, pages)
    assert forest.pool.cached == 2


def test_a_leaf_that_ends_inside_a_page_is_continued() -> None:
    forest = Forest(pages=9)
    first = forest.add([1, 2, 3, 4, 5, 6])
    second = forest.add([1, 2, 3, 4, 5, 6, 7, 8, 9])
    assert forest.find([1, 2, 3, 4, 5, 6, 7, 8, 9]) == (9, [first[0], *second[1:]])
    assert (forest.pool.free, forest.pool.cached) == (6, 3)
    third = forest.add([1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    assert forest.find([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]) == (10, [first[0], second[1], third[2]])
    assert (forest.pool.free, forest.pool.cached) == (6, 3)
    forest.check()
    lengths = []
    while forest.tree.evict():
        lengths.append(forest.find(list(range(1, 11)))[0])
    assert lengths == [8, 4, 0]


def test_a_leaf_that_is_pinned_or_parts_is_not_continued() -> None:
    forest = Forest()
    first = forest.add([1, 2, 3])
    node = forest.tree.match(array([1, 2, 3])).node
    forest.tree.pin(node)
    forest.add([1, 2, 3, 4])
    forest.tree.unpin(node)
    forest.add([1, 2, 3, 9])
    assert forest.find([1, 2, 3]) == (3, first)
    assert forest.pool.cached == 3
    forest.check()


def test_the_end_of_a_branch_can_be_discarded() -> None:
    forest = Forest()
    forest.add([1, 2, 3, 4])
    forest.add([1, 2, 7, 8])
    for tokens in ([1, 2, 3], [1, 2], [1, 2, 3, 4, 5], [9]):
        forest.tree.discard(array(tokens))
    assert forest.find([1, 2, 3, 4])[0] == 4
    node = forest.tree.match(array([1, 2, 3, 4])).node
    forest.tree.pin(node)
    forest.tree.discard(array([1, 2, 3, 4]))
    forest.tree.unpin(node)
    assert forest.find([1, 2, 3, 4])[0] == 4
    forest.tree.discard(array([1, 2, 3, 4]))
    assert forest.find([1, 2, 3, 4])[0] == 2
    assert forest.find([1, 2, 7, 8])[0] == 4
    forest.check()


def test_the_leaf_that_was_used_longest_ago_goes_first() -> None:
    forest = Forest()
    for first in (10, 20, 30):
        forest.add([first, 1, 2])
    forest.add([10, 1, 2])
    known = []
    while forest.tree.evict():
        known.append([first for first in (10, 20, 30) if forest.find([first])[0]])
        forest.check()
    assert known == [[10, 30], [10], []]
    assert forest.pool.free == 32


def test_a_parent_goes_after_its_children() -> None:
    forest = Forest()
    forest.add([1, 2, 3, 4, 5])
    forest.add([1, 2, 3, 4, 6])
    lengths = []
    while forest.tree.evict():
        lengths.append((forest.find([1, 2, 3, 4, 5])[0], forest.find([1, 2, 3, 4, 6])[0]))
    assert lengths == [(4, 5), (4, 4), (0, 0)]


def test_a_pin_protects_a_node_and_the_way_to_it() -> None:
    forest = Forest()
    forest.add([1, 2, 3, 4])
    forest.add([1, 2, 7, 8])
    node = forest.tree.match(array([1, 2, 3, 4])).node
    forest.tree.pin(node)
    assert forest.tree.evict()
    assert not forest.tree.evict()
    assert forest.find([1, 2, 3, 4])[0] == 4
    forest.tree.unpin(node)
    assert forest.tree.evict()
    assert forest.find([1, 2, 3, 4])[0] == 2


def test_a_pin_survives_the_split_of_its_node() -> None:
    forest = Forest()
    forest.add([1, 2, 3, 4])
    node = forest.tree.match(array([1, 2, 3])).node
    forest.tree.pin(node)
    forest.add([1, 2, 9])
    assert forest.tree.evict()
    assert not forest.tree.evict()
    assert forest.find([1, 2, 3, 4])[0] == 4
    forest.pool.check(np.zeros(32, np.int32), forest.tree.check({id(node): 1}))


def test_strip_takes_pinned_leaves_too() -> None:
    forest = Forest()
    forest.add([1, 2, 3, 4])
    node = forest.tree.match(array([1, 2, 3])).node
    forest.tree.pin(node)
    forest.tree.strip()
    assert forest.pool.free == 32
    forest.tree.unpin(node)
    assert not forest.tree.evict()
    with pytest.raises(AssertionError, match="empty"):
        forest.tree.strip()


def test_the_eviction_order_does_not_grow_with_use() -> None:
    forest = Forest()
    forest.add([1, 2, 3])
    for _ in range(1000):
        node = forest.tree.match(array([1, 2, 3])).node
        forest.tree.pin(node)
        forest.tree.unpin(node)
    assert len(forest.tree._heap) < 100


def test_check_names_what_is_broken() -> None:
    forest = Forest()
    forest.add([1, 2, 3, 4])
    node = forest.tree.match(array([1])).node
    with pytest.raises(AssertionError, match=r"node \[0, 4\) of the prefix tree has 0 pins, .* make it 1"):
        forest.tree.check({id(node): 1})
    node.pages = array([0, 1])
    with pytest.raises(AssertionError, match="has 2 pages"):
        forest.tree.check({})


SEQUENCES = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=1, max_size=12)


def common(left: list[int], right: list[int]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False)))


@settings(max_examples=150, deadline=None)
@given(SEQUENCES, SEQUENCES, st.integers(1, 5), st.integers(0, 6))
def test_matches_are_the_longest_common_prefixes(
    known: list[list[int]], asked: list[list[int]], page_size: int, evictions: int
) -> None:
    """Against a list of sequences, and with the tokens of each page written down when it was inserted."""
    forest = Forest(pages=200, page_size=page_size)
    written: dict[int, list[int]] = {}
    for tokens in known:
        for index, page in enumerate(forest.add(tokens)):
            written[page] = tokens[: (index + 1) * page_size]
        forest.check()
    for tokens in asked:
        length, pages = forest.find(tokens)
        assert length == max(common(tokens, other) for other in known)
        for index, page in enumerate(pages):
            end = min(length, (index + 1) * page_size)
            assert written[page][:end] == tokens[:end]
    for _ in range(evictions):
        forest.tree.evict()
        forest.check()
    while forest.tree.evict():
        pass
    assert forest.pool.free == 200


def test_each_salt_has_a_tree_of_its_own_which_goes_with_its_last_leaf() -> None:
    forest = Forest()
    pages = forest.pool.take(1)
    forest.tree.insert(array([1, 2]), pages, "ours")
    forest.pool.drop(pages)
    forest.check()
    assert forest.tree.match(array([1, 2]), "ours").length == 2
    assert forest.tree.match(array([1, 2]), "theirs").length == 0
    assert forest.find([1, 2]) == (0, [])
    forest.tree.discard(array([1, 2]), "theirs")
    assert forest.tree.evict()
    assert not forest.tree._roots
    forest.check()


def test_each_edge_keeps_the_keys_of_the_pages_that_end_in_it() -> None:
    forest = Forest()
    left = [1, 2, 3, 4, 5, 6, 7, 8, 9]
    for tokens in (left, [1, 2, 3, 4, 5, 6, 10, 11], [*left, 12, 13, 14]):
        pages = forest.pool.take(-(-len(tokens) // 4))
        keys = page_keys(array(tokens), 4, "")
        forest.tree.insert(array(tokens), pages, "", keys)
        forest.pool.drop(pages)
    forest.check()
    kept = sorted((node.start, node.end, node.keys) for node in forest.tree)
    other = page_keys(array([1, 2, 3, 4, 5, 6, 10, 11]), 4, "")
    assert kept == sorted([(0, 6, keys[:1]), (6, 8, keys[1:2]), (6, 8, other[1:]), (8, 12, keys[2:])])


class Sliding:
    """A tree with a window of 6 over pages of 4, and one group of layers."""

    def __init__(self) -> None:
        self.pool = Pool(32, holes=True)
        self.tree = Tree(self.pool, 4, windows=Windows((6,), 4, 16))

    def add(self, tokens: list[int], lacks: int) -> list[int]:
        """Insert a sequence that has lost its first pages; returns those that it has."""
        blocks = -(-len(tokens) // 4)
        pages = self.pool.take(blocks - lacks)
        self.tree.insert(array(tokens), np.concatenate([array([NO_PAGE] * lacks), pages]))
        self.pool.drop(pages)
        self.pool.check(array([0] * 32), self.tree.check({}))
        return pages.tolist()

    def length(self, tokens: list[int]) -> int:
        return self.tree.match(array(tokens)).length


def test_a_match_ends_where_the_window_before_it_is_there() -> None:
    grove = Sliding()
    grove.add(list(range(20)), lacks=2)
    assert [grove.length(list(range(n))) for n in (20, 14, 13, 12, 8)] == [20, 14, 13, 0, 0]
    assert grove.tree.match(array(list(range(12)))).node.parent is None


def test_what_a_tree_lacks_it_takes_from_the_next_that_has_it() -> None:
    grove = Sliding()
    grove.add(list(range(20)), lacks=2)
    free = grove.pool.free
    pages = grove.add([*range(10), 99], lacks=0)
    assert grove.length([*range(10), 98]) == 10
    assert grove.length(list(range(20))) == 20
    assert grove.tree.match(array(list(range(8)))).pages.tolist() == pages[:2]
    assert grove.pool.free == free - 3


def test_a_leaf_is_not_continued_over_the_page_it_ends_in() -> None:
    grove = Sliding()
    grove.add(list(range(10)), lacks=0)
    grove.add(list(range(24)), lacks=4)
    assert [grove.length(list(range(n))) for n in (10, 24)] == [10, 24]


def test_thinning_takes_what_nobody_uses_of_groups_with_windows() -> None:
    pool = Pool(32, holes=True)
    tree = Tree(pool, 4, windows=Windows((0, 6), 4, 16))
    pages = pool.take(10)
    tree.insert(array(list(range(20))), pages)
    pool.drop(pages[:6])
    assert tree.thin()
    assert tree.match(array(list(range(20)))).pages.reshape(-1, 2)[:, 1].tolist() == [
        -1,
        -1,
        -1,
        *pages[7::2],
    ]
    assert (pool.free, pool.cached) == (22 + 3, 3)
    assert not tree.thin()
    assert not Tree(Pool(4), 4).thin()


def test_what_only_leads_to_a_node_is_uprooted_with_it() -> None:
    forest = Forest()
    forest.add([1, 2, 3, 4])
    forest.add([1, 2, 3, 4, 5, 6, 7, 8])
    forest.add([9, 9])
    forest.tree.uproot(forest.tree.match(array([1, 2, 3, 4, 5, 6, 7, 8])).node)
    assert [forest.find(tokens)[0] for tokens in ([1, 2], [9, 9])] == [0, 2]
    forest.check()
