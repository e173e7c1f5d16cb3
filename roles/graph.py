"""The role graph as data: which processes there are, and which rings run between them.

Spawning, wiring, the ready count and the order of shutdown are all derived from `ROLES` and `RINGS`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

from stretto.roles import messages as m
from stretto.roles.actor import edge
from stretto.roles.config import Config
from stretto.shm import bell, ring

RING_BYTES = 16 << 20
"""Of one ring; touched lazily, so an idle ring costs a page. A record may take a quarter of it."""


class RoleSpec(NamedTuple):
    """One role: its name, which is its package's, and how many processes play it."""

    name: str
    count: Callable[[Config], int] = lambda config: 1
    listens: bool = False
    """It is handed the listening socket, and has a spare place, so that a successor can start beside it."""


ROLES = (
    RoleSpec("executor"),
    RoleSpec("scheduler"),
    RoleSpec("detokenizer", lambda config: config.detokenizers),
    RoleSpec("tokenizer", lambda config: config.tokenizers),
    RoleSpec("gateway", lambda config: config.gateways, listens=True),
)
"""In the order of launch, slowest first; shutdown goes the other way, from the door inwards."""

KEEPERS = ("gateway", "detokenizer")
"""Roles that keep streams and are told of every death."""

RINGS = (
    ("tokenizer", "scheduler"),
    ("scheduler", "executor"),
    ("executor", "scheduler"),
    ("scheduler", "detokenizer"),
    ("detokenizer", "scheduler"),
)
"""(writer, reader). The zmq edges need no wiring: their addresses follow from the names."""


def names(config: Config, role: str | None = None) -> list[str]:
    """Process names, e.g. "gateway.0", in order of launch; of one role, or of all."""
    specs = [spec for spec in ROLES if role in (None, spec.name)]
    return [f"{spec.name}.{i}" for spec in specs for i in range(spec.count(config))]


def places(config: Config) -> list[str]:
    """`names`, and the spare places: rows that a board needs."""
    spares = [f"{spec.name}.{spec.count(config)}" for spec in ROLES if spec.listens]
    return names(config) + spares


def listens(role: str) -> bool:
    """Whether processes of this role accept connections."""
    return any(spec.listens for spec in ROLES if spec.name == role)


def rings(config: Config) -> Iterator[tuple[str, str]]:
    """(writer, reader) for every ring of the launch, by process name."""
    for writer, reader in RINGS:
        for w in names(config, writer):
            for r in names(config, reader):
                yield w, r


class Wiring:
    """Owns the descriptors of every ring: three each (memory, items bell, space bell).

    A ring outlives neither of its ends: when one dies, `replace` makes a fresh one.
    """

    def __init__(self, config: Config) -> None:
        self._fds: dict[tuple[str, str], tuple[int, int, int]] = {}
        for ends in rings(config):
            self._fds[ends] = self._make(ends)

    @staticmethod
    def _make(ends: tuple[str, str]) -> tuple[int, int, int]:
        return ring.create(edge(*ends), RING_BYTES), bell.create(), bell.create()

    def of(self, name: str, peer: str | None = None) -> tuple[list[m.RingWire], list[int]]:
        """The ring ends of one process, or only those it shares with `peer`, and their descriptors."""
        wires: list[m.RingWire] = []
        fds: list[int] = []
        for ends, three in self._fds.items():
            if name in ends and (peer is None or peer in ends):
                wires.append(m.RingWire(edge(*ends)))
                fds.extend(three)
        return wires, fds

    def replace(self, name: str) -> list[str]:
        """Make all rings of a dead process anew; returns the neighbours that must be told."""
        neighbours = []
        for ends, old in self._fds.items():
            if name in ends:
                _close(old)
                self._fds[ends] = self._make(ends)
                neighbours.append(ends[0] if ends[1] == name else ends[1])
        return list(dict.fromkeys(neighbours))

    def close(self) -> None:
        """Close every descriptor."""
        for three in self._fds.values():
            _close(three)
        self._fds.clear()


def _close(fds: tuple[int, int, int]) -> None:
    for fd in fds:
        os.close(fd)
