"""The invariants notice what is broken: each test breaks one thing by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stretto.roles import messages as m
from stretto.roles.scheduler.core import Core
from stretto.roles.scheduler.sequence import Decode, Gone, Retiring
from stretto.tests.roles.scheduler.device import World


def lose_a_page(core: Core) -> None:
    core._requests.batch.memory.pool.take(1)


def share_a_page_to_be_written(core: Core) -> None:
    core._requests.batch.table.blocks[0] = core._requests.batch.table.blocks[1]
    core._requests.batch.table.length[0] = 5


def repeat_a_page(core: Core) -> None:
    core._requests.batch.table.blocks[0, 1] = core._requests.batch.table.blocks[0, 0]


def lack_a_page(core: Core) -> None:
    core._requests.batch.table.length[0] = 50


def forget_a_pin(core: Core) -> None:
    state = core._requests.batch.holders[0].state
    assert isinstance(state, Decode)
    core._requests.batch.memory.tree.unpin(state.node)


def free_a_slot_in_use(core: Core) -> None:
    core._requests.batch._free_slots.append(0)


def decode_a_free_slot(core: Core) -> None:
    core._requests.batch.table.decoding[3] = True


def mute_a_sequence(core: Core) -> None:
    core._requests.batch.table.live[0] = False


def swap_two_slots(core: Core) -> None:
    core._requests.batch.holders[0], core._requests.batch.holders[1] = (
        core._requests.batch.holders[1],
        core._requests.batch.holders[0],
    )


def lose_a_waiting_request(core: Core) -> None:
    head = core._requests.queue.head()
    assert head is not None
    core._requests.queue.remove(head)


def queue_a_running_request(core: Core) -> None:
    core._requests.queue.add(core._requests.batch.holders[0])


def end_a_request_twice(core: Core) -> None:
    core._requests.live[1].state = Gone()


def retire_without_a_record(core: Core) -> None:
    state = core._requests.batch.holders[0].state
    assert isinstance(state, Decode)
    core._requests.batch.holders[0].state = Retiring(state.slot, state.node, retracted=True)
    core._requests.batch.table.decoding[0] = False


def wait_for_a_step_that_never_was(core: Core) -> None:
    core._requests.batch._retiring[99] = []


def forget_to_release_a_follower(core: Core) -> None:
    core._requests.live[6].published = True


def forget_a_beam(core: Core) -> None:
    (search,) = core._requests.searches
    search.pending.popitem()


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lose_a_page, "users differ"),
        (share_a_page_to_be_written, "writes to pages of others"),
        (repeat_a_page, "has a page twice"),
        (lack_a_page, "lacks pages"),
        (forget_a_pin, "has 0 pins, running sequences make it 1"),
        (free_a_slot_in_use, "slots: held"),
        (decode_a_free_slot, "is in use"),
        (mute_a_sequence, "live is False"),
        (swap_two_slots, "is in slot 0, not"),
        (lose_a_waiting_request, "requests are lost"),
        (queue_a_running_request, "requests wait and run"),
        (end_a_request_twice, "is gone and lives"),
        (retire_without_a_record, "1 sequences retire, 0 are on record"),
        (wait_for_a_step_that_never_was, "not in flight"),
        (forget_to_release_a_follower, "request 7 waits for no leader"),
        (forget_a_beam, "beam searches wait for"),
    ],
)
def test_check_says_what_is_broken(break_it: Callable[[Core], None], message: str) -> None:
    world = World(max_seqs=4, max_batched_tokens=32)
    for first in (10, 20):
        world.submit([first, 2, 3, 4, 5], max_tokens=30)
    world.turn()
    world.submit(list(range(60)), max_tokens=30)
    world.turn()
    for first in (30, 40, 50):
        world.submit([first, 2, 3, 4, 5], max_tokens=30)
    world.turn()
    world.submit([50, 2, 3, 4, 5], leader=6)
    world.submit([60, 2, 3], beams=m.Beams(1, 1))
    assert world.core.waiting > 0
    world.core.check()
    break_it(world.core)
    with pytest.raises(AssertionError, match=message):
        world.core.check()
