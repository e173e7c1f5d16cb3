"""What the processes of a server hold: memory and file descriptors, by process."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import NamedTuple

import psutil

from stretto.bench.launch import Launch


class Holding(NamedTuple):
    """Of one process: anonymous memory, which unlike mapped files nobody can take from it; and open files."""

    mib: float
    files: int


NOTHING = Holding(0.0, 0)
Census = Mapping[str, Holding]


def census(server: Launch) -> dict[str, Holding]:
    """All processes that live now."""
    found = {}
    for title, process in server.family().items():
        with contextlib.suppress(psutil.Error):
            found[title] = Holding(_anonymous_kib(process.pid) / 1024, process.num_fds())
    return found


def _anonymous_kib(pid: int) -> int:
    """0 for a process that has gone."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:"))
    return 0


def peak(one: Census, other: Census) -> dict[str, Holding]:
    """The larger of the two, by process."""
    titles = one.keys() | other.keys()
    return {title: _peak(one.get(title, NOTHING), other.get(title, NOTHING)) for title in titles}


def _peak(one: Holding, other: Holding) -> Holding:
    return Holding(max(one.mib, other.mib), max(one.files, other.files))


def grown(before: Census, after: Census, mib: float, files: int) -> list[str]:
    """Processes of both that hold more than so much more than before, in words."""
    told = []
    for title in sorted(before.keys() & after.keys()):
        more, opened = after[title].mib - before[title].mib, after[title].files - before[title].files
        if more > mib:
            told.append(f"{title} grew by {more:.0f} MiB, from {before[title].mib:.0f}")
        if opened > files:
            told.append(f"{title} has {opened} more files open than before, {after[title].files}")
    return told


def told(holdings: Census) -> dict[str, dict[str, float]]:
    """For JSON."""
    return {title: {"mib": round(h.mib, 1), "files": h.files} for title, h in sorted(holdings.items())}
