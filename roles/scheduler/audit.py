"""The invariants of the core and its batch, verified from scratch: what `Core.check` runs."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

import numpy as np

from stretto.roles.scheduler.limits import Limits, pages_for
from stretto.roles.scheduler.memory import Memory
from stretto.roles.scheduler.pages import Ints
from stretto.roles.scheduler.searches import Searches
from stretto.roles.scheduler.sequence import Decode, Gone, Prefill, Retiring, Sequence, Waiting
from stretto.roles.scheduler.step import Flight
from stretto.roles.scheduler.table import Table

_NONE = np.empty(0, np.int32)


def require(condition: object, message: str) -> None:
    """Raise AssertionError unless the condition holds; unlike `assert` not switched off by -O."""
    if not condition:
        raise AssertionError(message)


def check_memory(memory: Memory, table: Table, holders: dict[int, Sequence], flights: deque[Flight]) -> None:
    """Page and pin counts equal their owners, counted from scratch."""
    used = np.zeros(memory.pool.total, np.int32)
    for slot, sequence in holders.items():
        pages = _held(table, slot, sequence)
        require(len(np.unique(pages)) == len(pages), f"request {sequence.uid} has a page twice: {pages}")
        used[pages] += 1
    for flight in flights:
        for source in flight.held:
            used[source] += 1
    pins = Counter(id(node) for sequence in holders.values() if (node := _node(sequence)) is not None)
    memory.pool.check(used, memory.tree.check(pins))
    memory.tiers.check()


def check_writers(table: Table, holders: dict[int, Sequence], limits: Limits) -> None:
    """A page that a sequence has yet to write belongs to it alone, and no position lacks a page but those
    that windows have left.
    """
    users = Counter(page for slot, own in holders.items() for page in _held(table, slot, own).tolist())
    size, groups = limits.page_size, len(limits.windows)
    for slot, sequence in holders.items():
        pages, length = table.pages_of(slot).reshape(-1, groups), int(table.length[slot])
        require(pages_for(length, size) <= len(pages), f"request {sequence.uid} lacks pages")
        shared = [page for page in pages[length // size :].ravel().tolist() if users[page] > 1]
        require(not shared, f"request {sequence.uid} writes to pages of others: {shared}")
        for group, window in enumerate(limits.windows):
            first = max(length - window + 1, 0) // size if window else 0
            lost = np.flatnonzero(pages[first:, group] < 0)
            require(not len(lost), f"request {sequence.uid} lacks the pages {first + lost} of group {group}")


def check_slots(
    table: Table, holders: dict[int, Sequence], free: list[int], prefills: dict[int, Sequence]
) -> None:
    """Every slot is free or held, by a sequence whose state says so and agrees with the table."""
    require(
        sorted([*holders, *free]) == list(range(len(table.live))), f"slots: held {list(holders)}, free {free}"
    )
    for slot, sequence in holders.items():
        state = sequence.state
        require(
            isinstance(state, Prefill | Decode | Retiring), f"request {sequence.uid} holds a slot in {state}"
        )
        wants = not isinstance(state, Retiring) or state.retracted
        require(table.live[slot] == wants, f"request {sequence.uid} in {state}: live is {table.live[slot]}")
        require(
            table.decoding[slot] == isinstance(state, Decode), f"request {sequence.uid} in {state} decodes"
        )
        require(
            getattr(state, "slot", None) == slot, f"request {sequence.uid} is in slot {slot}, not {state}"
        )
        require(table.uid[slot] == sequence.uid, f"slot {slot} is filled in for request {table.uid[slot]}")
    found = {slot for slot, sequence in holders.items() if isinstance(sequence.state, Prefill)}
    require(found == set(prefills), f"slots {found} are in prefill, not {list(prefills)}")
    require(not table.live[free].any() and not table.decoding[free].any(), f"a free slot of {free} is in use")


def check_states(live: dict[int, Sequence], queue: Iterable[Sequence], holders: dict[int, Sequence]) -> None:
    """Queue and slot membership match the states; nobody is lost and nobody is in two places."""
    waiting = {sequence.uid for sequence in queue}
    held = {sequence.uid for sequence in holders.values() if live.get(sequence.uid) is sequence}
    require(not waiting & held, f"requests wait and run: {waiting & held}")
    require(waiting | held == set(live), f"requests are lost: {set(live) ^ (waiting | held)}")
    for uid, sequence in live.items():
        state = sequence.state
        require(not isinstance(state, Gone), f"request {uid} is gone and lives")
        require(isinstance(state, Waiting) == (uid in waiting), f"request {uid} is not queued in {state}")
        require(not isinstance(state, Retiring) or state.retracted, f"request {uid} retires and lives")


def check_followers(live: dict[int, Sequence], held: Iterable[tuple[Sequence, int]]) -> None:
    """Who waits for a leader has one, which will publish its prompt."""
    for sequence, uid in held:
        leader = live.get(uid)
        require(
            leader is not None and not leader.published,
            f"request {sequence.uid} waits for no leader: {leader}",
        )


def check_searches(live: dict[int, Sequence], searches: Searches) -> None:
    """Every beam search waits for inner requests that live, and no others live."""
    pending = {uid for search in searches for uid in search.pending}
    inner = {uid for uid in live if uid < 0}
    require(pending == inner, f"beam searches wait for {pending}, inner requests {inner} live")
    for search in searches:
        require(search.pending, f"the beam search {search.request.uid} waits for nothing")


def check_retiring(
    retiring: dict[int, list[Sequence]], table: Table, holders: dict[int, Sequence], flights: deque[Flight]
) -> None:
    """What retires waits for a step in flight, the last one that touches it."""
    steps = {flight.number for flight in flights}
    require(
        set(retiring) <= steps, f"sequences wait for steps {set(retiring) - steps} that are not in flight"
    )
    for step, sequences in retiring.items():
        for sequence in sequences:
            state = sequence.state
            require(
                isinstance(state, Retiring) and table.last_step[state.slot] == step,
                f"request {sequence.uid} in {state} does not wait for step {step}",
            )
    number = sum(map(len, retiring.values()))
    found = sum(isinstance(sequence.state, Retiring) for sequence in holders.values())
    require(number == found, f"{found} sequences retire, {number} are on record")


def _held(table: Table, slot: int, sequence: Sequence) -> Ints:
    """Pages of a sequence, those put by among them, and those of its state."""
    stash = sequence.state.stash if isinstance(sequence.state, Prefill) else _NONE
    pages = np.concatenate([table.pages_of(slot), stash, table.states[slot]])
    return pages[pages >= 0]


def _node(sequence: Sequence) -> object | None:
    state = sequence.state
    return state.node if isinstance(state, Prefill | Decode | Retiring) else None
