"""The file store: what it keeps, and everything that can be wrong with a file."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import pytest

from stretto.roles.executor import disk_kv
from stretto.roles.executor.disk_kv import CHECKSUM_BYTES, DiskKV, ensure_directory

MODEL, OTHER = b"m" * 16, b"o" * 16
PAGE = 64


def key(number: int) -> bytes:
    return bytes([number]) * 16


def page(number: int) -> memoryview:
    return memoryview(bytes([number] * PAGE))


def store(root: Path, model: bytes = MODEL, pages: int = 100) -> DiskKV:
    made = DiskKV(root, model, pages * (PAGE + CHECKSUM_BYTES))
    list(made.index())
    return made


def load(disk: DiskKV, number: int) -> bytes | None:
    room = bytearray(PAGE)
    return bytes(room) if disk.load(key(number), memoryview(room)) else None


def file_of(root: Path, number: int, model: bytes = MODEL) -> Path:
    name = key(number).hex()
    return root / model.hex() / name[:2] / f"{name}.kv"


@pytest.fixture
def full(tmp_path: Path) -> DiskKV:
    """A store with the pages 1, 2, 3."""
    disk = store(tmp_path)
    assert all(disk.save(key(number), page(number)) for number in (1, 2, 3))
    return disk


def test_a_page_comes_back_byte_for_byte_in_this_process_and_the_next(full: DiskKV, tmp_path: Path) -> None:
    assert load(full, 2) == bytes([2] * PAGE)
    assert load(store(tmp_path), 2) == bytes([2] * PAGE)
    assert load(full, 9) is None
    assert full.errors == 0


def test_the_index_is_read_from_the_names_the_last_used_last(full: DiskKV, tmp_path: Path) -> None:
    for age, number in enumerate((3, 1, 2)):
        os.utime(file_of(tmp_path, number), (age, age))
    assert list(DiskKV(tmp_path, MODEL, 1 << 20).index()) == [[key(3), key(1), key(2)]]
    assert list(DiskKV(tmp_path, OTHER, 1 << 20).index()) == []


def test_a_page_that_is_used_is_young_again_also_for_the_next_process(full: DiskKV, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        os.utime(file_of(tmp_path, number), (number, number))
    load(store(tmp_path), 1)
    assert list(DiskKV(tmp_path, MODEL, 1 << 20).index()) == [[key(2), key(3), key(1)]]


def test_what_was_used_longest_ago_makes_room(tmp_path: Path) -> None:
    disk = store(tmp_path, pages=2)
    disk.save(key(1), page(1))
    disk.save(key(2), page(2))
    load(disk, 1)
    disk.save(key(3), page(3))
    assert disk.take_gone() == [key(2)]
    assert disk.take_gone() == []
    assert [load(disk, number) is not None for number in (1, 2, 3)] == [True, False, True]


def test_pages_of_another_model_count_and_make_room_too(full: DiskKV, tmp_path: Path) -> None:
    disk = store(tmp_path, OTHER, pages=3)
    assert disk.save(key(7), page(7))
    assert disk.take_gone() == []
    assert sum(file_of(tmp_path, number).exists() for number in (1, 2, 3)) == 2


def test_a_store_smaller_than_a_page_keeps_nothing(tmp_path: Path) -> None:
    disk = store(tmp_path, pages=0)
    assert not disk.save(key(1), page(1))
    assert not file_of(tmp_path, 1).exists()


@pytest.mark.parametrize("at", [0, CHECKSUM_BYTES - 1, CHECKSUM_BYTES, CHECKSUM_BYTES + PAGE - 1])
def test_a_flipped_bit_anywhere_is_found_said_once_and_the_file_removed(
    full: DiskKV, tmp_path: Path, at: int, caplog: pytest.LogCaptureFixture
) -> None:
    for number in (1, 2):
        path = file_of(tmp_path, number)
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)
        assert load(full, number) is None
        assert not path.exists()
    assert full.errors == 2
    assert len(caplog.records) == 1
    assert "is damaged, or not what its name says" in caplog.text
    assert full.save(key(1), page(1))
    assert load(full, 1) == bytes([1] * PAGE)


@pytest.mark.parametrize("size", [0, 1, CHECKSUM_BYTES, CHECKSUM_BYTES + PAGE - 1])
def test_a_truncated_file_is_not_trusted(full: DiskKV, tmp_path: Path, size: int) -> None:
    os.truncate(file_of(tmp_path, 1), size)
    assert load(full, 1) is None
    assert not file_of(tmp_path, 1).exists()


def test_a_file_that_is_too_long_is_not_trusted(full: DiskKV, tmp_path: Path) -> None:
    with file_of(tmp_path, 1).open("ab") as file:
        file.write(b"x")
    assert load(full, 1) is None


def test_a_file_under_the_name_of_another_page_is_not_trusted(full: DiskKV, tmp_path: Path) -> None:
    file_of(tmp_path, 1).write_bytes(file_of(tmp_path, 2).read_bytes())
    assert load(full, 1) is None
    assert load(full, 2) == bytes([2] * PAGE)


def test_a_file_of_another_model_is_not_trusted(full: DiskKV, tmp_path: Path) -> None:
    other = store(tmp_path, OTHER)
    assert load(other, 1) is None
    stray = file_of(tmp_path, 1, OTHER)
    stray.parent.mkdir(parents=True)
    stray.write_bytes(file_of(tmp_path, 1).read_bytes())
    assert load(other, 1) is None
    assert other.errors == 1


def test_a_full_disk_is_said_once_and_not_asked_again_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk, now = store(tmp_path), 1000.0
    tries = []

    def fail(path: Path, checksum: bytes, page: memoryview) -> None:
        tries.append(path)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(disk_kv.time, "monotonic", lambda: now)
    with monkeypatch.context() as patch:
        patch.setattr(disk, "_write", fail)
        assert not disk.save(key(1), page(1))
        assert not disk.save(key(2), page(2))
        now += disk_kv.WRITE_PAUSE_SECONDS
        assert not disk.save(key(2), page(2))
    assert tries == [file_of(tmp_path, 1), file_of(tmp_path, 2)]
    assert len(caplog.records) == 1
    assert "No space left on device; give it room, or a smaller --disk-kv-size" in caplog.text
    assert disk.errors == 3
    now += disk_kv.WRITE_PAUSE_SECONDS
    assert disk.save(key(1), page(1))


def test_a_device_without_room_leaves_no_torn_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = store(tmp_path)
    path = file_of(tmp_path, 1)
    path.parent.mkdir(parents=True)
    path.with_suffix(f".{os.getpid()}.tmp").symlink_to("/dev/full")
    assert not disk.save(key(1), page(1))
    assert list(path.parent.iterdir()) == []
    assert "No space left on device" in caplog.text


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_lost_permissions_are_survived(full: DiskKV, tmp_path: Path) -> None:
    file_of(tmp_path, 1).chmod(0)
    assert load(full, 1) is None
    assert full.errors == 1


def test_a_directory_in_the_way_is_survived(full: DiskKV, tmp_path: Path) -> None:
    file_of(tmp_path, 1).unlink()
    file_of(tmp_path, 1).mkdir()
    assert load(full, 1) is None
    assert full.errors == 1


def test_a_directory_that_vanishes_is_made_again(full: DiskKV, tmp_path: Path) -> None:
    for path in sorted(tmp_path.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert load(full, 1) is None
    assert full.save(key(4), page(4))
    assert load(full, 4) == bytes([4] * PAGE)


def test_what_a_crash_left_is_removed_once_it_is_old_and_foreign_files_are_not_touched(
    full: DiskKV, tmp_path: Path
) -> None:
    home = file_of(tmp_path, 1).parent
    old, young, foreign = home / "a.1.tmp", home / "b.2.tmp", tmp_path / "notes.txt"
    for path in (old, young, foreign):
        path.write_bytes(b"x")
    os.utime(old, (1, 1))
    os.utime(foreign, (1, 1))
    store(tmp_path)
    assert [path.exists() for path in (old, young, foreign)] == [False, True, True]


def test_a_directory_is_made_where_there_is_none_and_refused_where_it_cannot_be(tmp_path: Path) -> None:
    ensure_directory(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match="exists"):
        ensure_directory(tmp_path / "file")


@pytest.fixture(autouse=True)
def _warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
