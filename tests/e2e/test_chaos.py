"""Processes die all the time, and nobody notices: the short form of `stretto bench chaos`."""

import asyncio

from stretto.bench.chaos import HEARTBEAT_TIMEOUT, Chaos


def test_no_answer_is_lost_or_altered_while_roles_are_killed_and_frozen(start):
    server = start("--heartbeat-timeout", str(HEARTBEAT_TIMEOUT))
    chaos = Chaos(server, streams=8, minutes=0.2, every=3.0, tokens=8, patience=300.0, seed=1)
    figures = asyncio.run(chaos.run())
    server.stop()
    assert figures["faults"] == []
    assert sum(figures["blows"].values()) >= 2
    assert figures["answers"] >= 8
