"""The disk's thread: reads first, nothing lost, nothing done for a scheduler that is gone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stretto.roles import messages as m
from stretto.roles.executor.disk_kv import DiskKV
from stretto.roles.executor.disk_worker import DiskTask, DiskWorker


class Slow(DiskKV):
    """Notes what it does, and waits at its first write until it may go on."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, b"model", 1 << 20)
        self.did: list[tuple[str, int]] = []
        self.began, self.go = threading.Event(), threading.Event()

    def save(self, key: bytes, page: memoryview) -> bool:
        self.did.append(("save", key[0]))
        self.began.set()
        self.go.wait()
        return super().save(key, page)

    def load(self, key: bytes, page: memoryview) -> bool:
        self.did.append(("load", key[0]))
        return super().load(key, page)


class Rig:
    def __init__(self, root: Path) -> None:
        self.store, self.woken = Slow(root), threading.Event()
        self.worker = DiskWorker(self.store, self.woken.set)

    def give(self, number: int, save: bool, *keys: int) -> None:
        pages = [memoryview(bytearray([key] * 8)) for key in keys]
        self.worker.give(DiskTask(number, save, [bytes([key]) * 16 for key in keys], pages, self.worker.era))

    def answers(self, count: int) -> list[m.Moved | m.Shelved]:
        found: list[m.Moved | m.Shelved] = []
        while len(found) < count:
            self.woken.wait()
            self.woken.clear()
            found += self.worker.collect()
        return found


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.store.go.set()
    made.worker.close()


def test_reads_overtake_writes(rig: Rig) -> None:
    rig.give(1, True, 1)
    rig.store.began.wait()
    rig.give(2, True, 2)
    rig.give(3, False, 1)
    rig.store.go.set()
    answers = rig.answers(3)
    assert rig.store.did == [("save", 1), ("load", 1), ("save", 2)]
    assert [(answer.number, answer.ok) for answer in answers] == [(1, b"\x01"), (3, b"\x01"), (2, b"\x01")]  # type: ignore[union-attr]
    assert rig.worker.idle


def test_what_has_not_begun_is_forgotten_and_what_comes_late_too(rig: Rig) -> None:
    rig.give(1, True, 1)
    rig.store.began.wait()
    rig.give(2, True, 2)
    late = DiskTask(3, True, [bytes(16)], [memoryview(b"x")], rig.worker.era)
    rig.worker.forget()
    rig.worker.give(late)
    assert not rig.worker.idle
    rig.store.go.set()
    rig.answers(1)
    assert rig.worker.idle
    assert rig.store.did == [("save", 1)]


def test_it_tells_what_there_is_and_what_made_room(tmp_path: Path) -> None:
    woken = threading.Event()
    worker = DiskWorker(DiskKV(tmp_path, b"model", 100), woken.set)
    pages = [memoryview(bytes(40))]
    found: list[m.Moved | m.Shelved] = []

    def wait(count: int) -> None:
        while len(found) < count:
            woken.wait()
            woken.clear()
            found.extend(worker.collect())

    worker.give(DiskTask(1, True, [b"a" * 16], pages))
    wait(1)
    assert worker.introduce() == []  # nothing was there at the start
    worker.introduce()
    wait(2)
    worker.give(DiskTask(2, True, [b"b" * 16], pages))
    wait(4)
    worker.close()
    assert found[1] == m.Shelved(added=b"a" * 16)
    assert found[3] == m.Shelved(gone=b"a" * 16)


class SlowToRead(DiskKV):
    """Waits before its directory is read until it may go on."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, b"model", 1 << 20)
        self.go = threading.Event()

    def index(self) -> Iterator[list[bytes]]:
        self.go.wait()
        return super().index()


def slow(tmp_path: Path) -> tuple[SlowToRead, threading.Event, DiskWorker]:
    """A store with one page, which has yet to be found."""
    DiskKV(tmp_path, b"model", 1 << 20).save(b"a" * 16, memoryview(b"page"))
    store, woken = SlowToRead(tmp_path), threading.Event()
    return store, woken, DiskWorker(store, woken.set)


def test_what_is_known_in_time_is_told_at_once(tmp_path: Path) -> None:
    store, woken, worker = slow(tmp_path)
    assert (worker.idle, worker.indexed) == (True, False)
    store.go.set()
    woken.wait()
    assert worker.indexed
    assert worker.introduce() == [m.Shelved(added=b"a" * 16)]
    worker.close()
    assert worker.collect() == []


def test_what_is_not_known_in_time_is_told_later_and_once(tmp_path: Path) -> None:
    store, woken, worker = slow(tmp_path)
    assert worker.introduce() == []
    assert not worker.idle
    store.go.set()
    woken.wait()
    assert worker.collect() == [m.Shelved(added=b"a" * 16)]
    assert worker.idle
    worker.close()
    assert worker.collect() == []
