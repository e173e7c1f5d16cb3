"""Requests that run and gain nothing."""

from __future__ import annotations

from stretto.tests.roles.scheduler.device import World


def test_a_request_that_gains_nothing_while_others_do_fails_alone() -> None:
    world = World()
    stuck = world.submit([1, 2, 3], max_tokens=40)
    good = world.submit([4, 5, 6], max_tokens=40)
    for _ in range(3):
        world.turn()
    world.core.fail_stalled(0.0, 10.0)
    table = world.core._requests.batch.table
    length, known = int(table.length[0]), int(table.known[0])
    table.decoding[0] = False  # a scheduler that forgot it
    world.core._requests.batch._decodes = None
    for now in (4.0, 8.0):
        world.turn()
        table.length[0], table.known[0] = length, known
        world.core.fail_stalled(now, 10.0)
    assert world.streams[stuck].end is None
    world.turn()
    world.core.fail_stalled(10.0, 10.0)
    world.collect()
    assert world.fault(stuck).code == "request_stalled"
    world.drain()
    assert world.output(good) == world.expect(good)


def test_a_device_that_does_not_report_is_nobodys_fault() -> None:
    world = World()
    uid = world.submit([1, 2, 3], max_tokens=9)
    world.turn()
    world.plan()
    for now in (0.0, 100.0, 200.0):
        world.core.fail_stalled(now, 10.0)
    world.drain()
    assert world.output(uid) == world.expect(uid)
