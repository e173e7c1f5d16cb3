"""The role graph as data."""

import os
from collections import Counter

import pytest

from stretto.roles import graph
from stretto.roles.config import Config

SMALL = Config()
WIDE = Config(tokenizers=2, detokenizers=3, gateways=2)


@pytest.fixture
def wiring():
    wiring = graph.Wiring(WIDE)
    yield wiring
    wiring.close()


def test_names_follow_the_counts():
    assert graph.names(SMALL) == ["executor.0", "scheduler.0", "detokenizer.0", "tokenizer.0", "gateway.0"]
    assert graph.names(WIDE, "detokenizer") == ["detokenizer.0", "detokenizer.1", "detokenizer.2"]


def test_a_gateway_has_a_spare_place_for_its_successor():
    assert graph.places(SMALL) == [*graph.names(SMALL), "gateway.1"]
    assert graph.places(WIDE) == [*graph.names(WIDE), "gateway.2"]


def test_every_instance_has_its_own_ring():
    assert Counter(graph.rings(WIDE)) == Counter(
        [("tokenizer.0", "scheduler.0"), ("tokenizer.1", "scheduler.0")]
        + [("scheduler.0", "executor.0"), ("executor.0", "scheduler.0")]
        + [("scheduler.0", f"detokenizer.{i}") for i in range(3)]
        + [(f"detokenizer.{i}", "scheduler.0") for i in range(3)]
    )


def test_the_rings_of_a_process_fit_one_control_message():
    widest = Config(tokenizers=16, detokenizers=16)
    ends = [pair for pair in graph.rings(widest) if "scheduler.0" in pair]
    assert 3 * len(ends) + 2 <= 253  # the kernel's limit of descriptors per message


def test_both_ends_of_a_ring_get_the_same_descriptors(wiring):
    wires, fds = wiring.of("tokenizer.1")
    other, theirs = wiring.of("scheduler.0", "tokenizer.1")
    assert [wire.edge for wire in wires] == ["tokenizer.1>scheduler.0"] == [wire.edge for wire in other]
    assert fds == theirs


def test_a_dead_process_gets_fresh_rings_and_its_neighbours_are_named(wiring):
    untouched = wiring.of("scheduler.0", "executor.0")
    inodes = [os.fstat(fd).st_ino for fd in wiring.of("detokenizer.1")[1]]
    assert wiring.replace("detokenizer.1") == ["scheduler.0"]
    assert [os.fstat(fd).st_ino for fd in wiring.of("detokenizer.1")[1]][::3] != inodes[::3]
    assert wiring.of("scheduler.0", "executor.0") == untouched


def test_nothing_stays_open():
    before = os.listdir("/proc/self/fd")
    wiring = graph.Wiring(WIDE)
    wiring.replace("scheduler.0")
    wiring.close()
    assert os.listdir("/proc/self/fd") == before
