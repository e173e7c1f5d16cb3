"""Who kills the device is found and fails; everybody else goes on."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

import pytest

from stretto.roles import messages as m
from stretto.tests.roles.scheduler.device import Slot, World, rows

POISON = 7
"""The seed of the guilty request."""


class Touch(NamedTuple):
    """A row of a plan."""

    sampling: m.Sampling
    end: int
    """Length of the sequence after it."""
    decode: bool


def touched(world: World, plan: m.Plan) -> list[Touch]:
    """All rows of a plan."""
    fresh = {admit.slot: Slot(admit.length, [], admit.sampling) for admit in plan.admits}
    known = {**world.device.slots, **fresh}
    chunks = [(slot, count, False) for slot, count, _ in rows(plan.chunks, 3)]
    decodes = [(slot, 1, True) for (slot,) in rows(plan.decodes, 1)]
    return [
        Touch(known[slot].sampling, known[slot].length + count, decode)
        for slot, count, decode in [*chunks, *decodes]
    ]


def kill_by(world: World, deadly: Callable[[Touch], bool], limit: int = 30) -> int:
    """Drain a world whose device dies of the next plan if it is deadly; returns how often it did."""
    deaths = 0
    while world.core.busy:
        while world.plan() is not None:
            pass
        if any(map(deadly, touched(world, world.flying[0]))):
            deaths += 1
            assert deaths < limit
            world.restart()
        else:
            world.report()
        world.core.check()
    return deaths


def crowd(world: World) -> tuple[int, list[int]]:
    """A guilty request among twenty."""
    uids = [world.submit([1, 2, seed], max_tokens=12, seed=seed) for seed in range(20)]
    return uids[POISON], [uid for uid in uids if uid != uids[POISON]]


@pytest.mark.parametrize("end", [0, 7])
@pytest.mark.parametrize("decodes", [True, False])
@pytest.mark.parametrize("overlap", [True, False])
def test_one_guilty_among_twenty_fails_soon_and_alone(end: int, decodes: bool, overlap: bool) -> None:
    """It kills at its prompt or at a token of its output, in any step or only in those that decode."""
    world = World(max_seqs=20, max_batched_tokens=32, overlap=overlap)
    guilty, others = crowd(world)
    deaths = kill_by(
        world, lambda row: row.sampling.seed == POISON and row.end >= end and row.decode >= decodes
    )
    assert deaths <= 4
    assert world.fault(guilty).code == "poison_request"
    for uid in others:
        assert world.output(uid) == world.expect(uid)


def test_a_beam_search_that_kills_the_device_fails_as_one() -> None:
    world = World()
    good = world.submit([5, 6], max_tokens=9, seed=3)
    bad = world.submit([1, 2, 3], max_tokens=6, beams=m.Beams(2, 2))
    kill_by(world, lambda row: (row.sampling.logprobs or 0) > 0 and row.end >= 4)
    assert [world.fault(uid).code for uid in (bad, bad + 1)] == ["poison_request"] * 2
    assert world.output(good) == world.expect(good)


@pytest.mark.parametrize("seed", range(20))
def test_no_innocent_fails_however_often_the_device_dies_as_long_as_all_make_progress(seed: int) -> None:
    world, dice = World(max_seqs=8, max_batched_tokens=64), random.Random(seed)
    _, uids = crowd(world)
    while world.core.busy:
        for _ in range(dice.randint(4, 9)):
            if world.core.busy:
                world.turn()
        world.restart()
        world.core.check()
    for uid in uids:
        assert world.output(uid) == world.expect(uid)


def test_a_suspect_that_gains_tokens_lets_the_next_one_run() -> None:
    world = World()
    uids = [world.submit([1, 2, 3, seed], max_tokens=6, seed=seed) for seed in range(3)]
    late = world.submit([4], max_tokens=2)
    for _ in range(2):
        world.plan()
        world.restart()
    before = len(world.plans)
    while world.core._requests.suspects:
        world.turn()
        assert world.core.running <= 1
    tried = [admit.sampling.seed for plan in world.plans[before:] for admit in plan.admits]
    assert tried[:3] == [0, 1, 2]
    world.drain()
    for uid in [*uids, late]:
        assert world.output(uid) == world.expect(uid)


def test_a_suspect_that_ends_while_it_waits_holds_nobody_up() -> None:
    world = World()
    uids = [world.submit([1, 2, seed], max_tokens=6, seed=seed) for seed in range(2)]
    for _ in range(2):
        world.plan()
        world.restart()
    world.abort(uids[0])
    world.drain()
    assert world.output(uids[1]) == world.expect(uids[1])


def test_who_is_alone_when_the_device_is_killed_is_guilty_the_second_time() -> None:
    world = World()
    uid = world.submit([1, 2, 3], max_tokens=6)
    for _ in range(3):
        world.plan()
        world.restart(killed=True)
    world.plan()
    assert world.core.running == 1
    world.restart(killed=True)
    assert world.fault(uid).code == "poison_request"


def test_who_gained_tokens_between_two_kills_is_not_guilty() -> None:
    world = World()
    uid = world.submit([1, 2, 3], max_tokens=40)
    for _ in range(9):
        for _ in range(2):
            world.plan()
            world.restart(killed=True)
        world.plan()
        world.restart(killed=True)
        for _ in range(6):
            world.turn()
    world.drain()
    assert world.output(uid) == world.expect(uid)
