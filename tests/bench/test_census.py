"""What is held, and by how much more."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import psutil

from stretto.bench.census import Holding, census, grown, peak


def test_anonymous_memory_and_files_of_each_process_are_counted() -> None:
    me = SimpleNamespace(family=lambda: {"me": psutil.Process()})
    before = census(me)["me"]  # type: ignore[arg-type]
    held, fd = bytearray(64 << 20), os.open(os.devnull, os.O_RDONLY)
    for page in range(0, len(held), 4096):
        held[page] = 1
    after = census(me)["me"]  # type: ignore[arg-type]
    os.close(fd)
    assert 60 < after.mib - before.mib < 90
    assert after.files == before.files + 1


def test_a_process_that_has_gone_holds_nothing() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    process = psutil.Process(child.pid)
    child.wait()
    assert census(SimpleNamespace(family=lambda: {"gone": process})) == {}  # type: ignore[arg-type]


def test_the_peak_is_by_process() -> None:
    one, other = {"a": Holding(1.0, 9)}, {"a": Holding(2.0, 3), "b": Holding(5.0, 1)}
    assert peak(one, other) == {"a": Holding(2.0, 9), "b": Holding(5.0, 1)}


def test_growth_beyond_the_bounds_is_told() -> None:
    before, after = {"a": Holding(10.0, 5), "gone": Holding(1.0, 1)}, {"a": Holding(15.0, 8)}
    assert grown(before, after, mib=5.0, files=3) == []
    assert grown(before, after, mib=4.0, files=2) == [
        "a grew by 5 MiB, from 10",
        "a has 3 more files open than before, 8",
    ]
