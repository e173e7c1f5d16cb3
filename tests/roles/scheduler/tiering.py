"""Short words for keys, pages and moves, for the tests of the tiers."""

from __future__ import annotations

import numpy as np

from stretto.roles import messages as m
from stretto.roles.scheduler.below import Below
from stretto.roles.scheduler.pages import Ints
from stretto.roles.scheduler.tiers import Tiers

ON_DISK = Below(host_pages=8, disk=True)


def key(number: int) -> bytes:
    return bytes([number]) * 16


def keys(*numbers: int) -> list[bytes]:
    return [key(number) for number in numbers]


def pages(*numbers: int) -> Ints:
    return np.array(numbers, np.int32)


def shown(move: m.Move) -> tuple[int, str, list[int], list[int] | list[bytes]]:
    """(number, kind, host pages, device pages or keys)"""
    device = np.frombuffer(move.device, np.int32).tolist()
    names = [move.keys[start : start + 16] for start in range(0, len(move.keys), 16)]
    return move.number, move.kind, np.frombuffer(move.host, np.int32).tolist(), device or names


def sent(tiers: Tiers) -> list[tuple[int, str, list[int], list[int] | list[bytes]]]:
    tiers.check()
    return [shown(move) for move in tiers.take_moves()]


def done(tiers: Tiers, number: int, ok: list[int], seconds: float = 0.0) -> bool:
    return tiers.moved(m.Moved(number, bytes(ok), seconds))


def host(count: int, **more: object) -> Tiers:
    return Tiers(Below(host_pages=count, **more))  # type: ignore[arg-type]
