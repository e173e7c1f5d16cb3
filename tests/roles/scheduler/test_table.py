"""Columns over the slots."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stretto.roles import messages as m
from stretto.roles.scheduler.limits import Limits
from stretto.roles.scheduler.sequence import Sequence, Waiting
from stretto.roles.scheduler.table import Slots, Table

LIMITS = Limits(pages=8, page_size=4, max_seqs=3, max_batched_tokens=8, max_model_len=32)


def slots(*values: int) -> Slots:
    return np.array(values, np.int64)


def filled(
    slot: int, age: int, tokens: int, limit: int, stops: tuple[int, ...] = (), table: Table | None = None
) -> Table:
    table = Table(LIMITS) if table is None else table
    ids = np.arange(1, tokens + 1, dtype=np.int32)
    request = m.Request(10 + slot, 0.0, ids.tobytes(), None, stops, m.Sampling(), m.Output(0, True))
    table.occupy(slot, Sequence(request, age, limit, Waiting(ids)), ids, 0, np.array([5, 6], np.int32))
    table.decoding[slot] = True
    return table


def test_decoding_slots_by_rank() -> None:
    table = filled(0, age=7, tokens=3, limit=9)
    filled(1, age=5, tokens=3, limit=9, table=table)
    filled(2, age=4, tokens=3, limit=9, table=table)
    assert table.by_rank().tolist() == [2, 1, 0]
    table.priority[:] = [-1, 3, 0]
    assert table.by_rank().tolist() == [0, 2, 1]


def test_a_slot_is_due_until_planned_steps_reach_its_limit() -> None:
    table = filled(1, age=0, tokens=3, limit=6)
    due = []
    for table.length[1] in (3, 4, 5):
        due.append(table.due(slots(1)).tolist())
    assert due == [[1], [1], []]


def test_a_slot_is_full_when_its_next_position_has_no_page() -> None:
    table = filled(1, age=0, tokens=3, limit=30)
    full = []
    for table.length[1] in (7, 8):
        full.append(table.full(slots(1)).tolist())
    assert full == [[], [1]]
    table.append_pages(slots(1), np.array([3], np.int32))
    assert table.full(slots(1)).tolist() == []
    assert table.pages_of(1).tolist() == [5, 6, 3]


def test_tokens_are_appended_and_numbered_from_the_prompt() -> None:
    table = filled(1, age=0, tokens=3, limit=30)
    assert table.append_tokens(slots(1), np.array([70], np.int32)).tolist() == [0]
    assert table.append_tokens(slots(1), np.array([71], np.int32)).tolist() == [1]
    assert table.tokens_of(1).tolist() == [1, 2, 3, 70, 71]


def test_only_computed_and_known_tokens_are_kept() -> None:
    table = filled(1, age=0, tokens=3, limit=30)
    kept = []
    for table.length[1] in (2, 3, 5):
        kept.append(table.kept_of(1).tolist())
    assert kept == [[1, 2], [1, 2, 3], [1, 2, 3]]


def test_stop_ids_of_each_slot() -> None:
    table = filled(0, age=0, tokens=3, limit=9, stops=(8,))
    filled(1, age=1, tokens=3, limit=9, stops=tuple(range(20, 40)), table=table)
    both = slots(0, 1)
    assert table.stopped(both, np.array([8, 8], np.int32)).tolist() == [True, False]
    assert table.stopped(both, np.array([39, 39], np.int32)).tolist() == [False, True]
    table.vacate(0)
    table.vacate(1)
    table.narrow_stops()
    filled(1, age=1, tokens=3, limit=9, stops=(7,), table=table)
    assert table.stopped(both, np.array([8, 7], np.int32)).tolist() == [False, True]


def test_a_window_leaves_pages_of_its_group_only() -> None:
    """Two groups, the second with a window; of what it leaves, one page came from the prefix tree."""
    table = filled(1, age=0, tokens=3, limit=9, table=Table(replace(LIMITS, windows=(0, 3))))
    table.extend(1, np.array([11, 21, 12, 22], np.int32))
    pages, own = table.leave(1, slots(0, 0), slots(0, 2), shared=2)
    assert (pages.tolist(), own, table.count[1]) == ([6, 21], 1, 3)
    assert table.pages_of(1).tolist() == [5, -1, 11, -1, 12, 22]
    assert table.leave(1, slots(0, 0), slots(0, 2), shared=2)[0].tolist() == []


def test_a_slot_grows_by_a_page_of_each_group() -> None:
    table = filled(1, age=0, tokens=3, limit=9, table=Table(replace(LIMITS, windows=(0, 3))))
    table.append_pages(slots(1), np.array([8, 9], np.int32))
    assert table.pages_of(1).tolist() == [5, 6, 8, 9]
    assert table.full(slots(1)).tolist() == []
