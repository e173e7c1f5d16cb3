"""Moves between device, host and disk: the very same bytes, in the right order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from stretto.roles import messages as m
from stretto.roles.executor.device_cpu import CpuDevice
from stretto.roles.executor.disk_kv import DiskKV
from stretto.roles.executor.disk_worker import DiskWorker
from stretto.roles.executor.host_kv import HostMover, StagedMover, allocate_host
from stretto.roles.executor.kv import PageShape
from stretto.roles.executor.transfers import Transfers

SHAPE = PageShape(layers=3, page_size=4, kv_heads=2, head_dim=5, dtype=torch.float32)
CPU = torch.device("cpu")


def int32(*values: int) -> bytes:
    return np.array(values, np.int32).tobytes()


def keys(*numbers: int) -> bytes:
    return b"".join(bytes([number]) * 16 for number in numbers)


class Rig:
    """A pool of 24 random pages, 24 host pages and a disk, with their transfers."""

    def __init__(self, root: Path, mover: type[HostMover | StagedMover] = HostMover) -> None:
        self.landed = threading.Event()
        self.device = CpuDevice(self.landed.set)
        self.cache = SHAPE.allocate(24, CPU)
        for tensor in self.cache:
            tensor.normal_()
        self.host = allocate_host(SHAPE, 24, CPU)
        self.stream = self.device.stream()
        disk = DiskWorker(DiskKV(root, b"model", 1 << 20), self.landed.set)
        self.transfers = Transfers(
            self.device,
            self.stream,
            mover(self.cache, self.host),
            self.host,
            disk,
            SHAPE.bytes,
            self.landed.set,
        )

    def move(self, number: int, kind: str, host: bytes, device: bytes = b"", keys: bytes = b"") -> None:
        self.transfers.start(m.Move(number, kind, host, device, keys))  # type: ignore[arg-type]

    def answers(self, count: int) -> list[m.Moved | m.Shelved]:
        found: list[m.Moved | m.Shelved] = []
        while len(found) < count:
            self.landed.wait()
            self.landed.clear()
            found += self.transfers.collect()
        return found

    def page(self, number: int) -> torch.Tensor:
        return torch.stack([tensor[:, number] for tensor in self.cache])

    def close(self) -> None:
        self.transfers.close()
        self.device.close()


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    rigs: list[Rig] = []

    def rig(mover: type[HostMover | StagedMover] = HostMover) -> Rig:
        rigs.append(Rig(tmp_path, mover))
        return rigs[-1]

    yield rig
    for made in rigs:
        made.close()


@pytest.mark.parametrize("mover", [HostMover, StagedMover])
def test_pages_come_back_with_the_very_same_bytes_and_others_stay(
    make: Callable[..., Rig], mover: type[HostMover]
) -> None:
    rig, pages = make(mover), np.random.default_rng(3).permutation(24)[:20]  # more than are staged at once
    before = [rig.page(page) for page in range(24)]
    rig.move(1, "out", int32(*range(20)), int32(*pages))
    rig.answers(1)
    for tensor in rig.cache:
        tensor[:, torch.from_numpy(pages)] = float("nan")
    rig.move(2, "in", int32(*range(20)), int32(*pages))
    assert [(answer.number, answer.ok) for answer in rig.answers(1)] == [(2, b"\x01" * 20)]  # type: ignore[union-attr]
    assert all(torch.equal(rig.page(page), before[page]) for page in range(24))


def test_the_host_keeps_a_page_in_one_run_of_memory_keys_before_values(make: Callable[..., Rig]) -> None:
    rig = make()
    rig.move(1, "out", int32(7), int32(2))
    rig.answers(1)
    assert rig.host.shape == (24, 3, 2, 4, 2, 5)
    assert torch.equal(rig.host[7, 1, 0], rig.cache.keys[1, 2])
    assert torch.equal(rig.host[7, 2, 1], rig.cache.values[2, 2])


def test_pages_survive_the_process_on_disk(make: Callable[..., Rig]) -> None:
    rig = make()
    rig.move(1, "out", int32(0, 1), int32(5, 6))
    rig.move(2, "save", int32(0, 1), keys=keys(5, 6))
    assert rig.answers(2)[1].ok == b"\x01\x01"  # type: ignore[union-attr]
    after = make()
    while not after.transfers.indexed:
        after.landed.wait()
    (listing,) = after.transfers.introduce()
    assert sorted(listing.added) == sorted(keys(5, 6))
    after.move(1, "load", int32(9, 3, 4), keys=keys(6, 8, 5))
    after.move(2, "in", int32(9, 4), int32(0, 1))
    answers = {answer.number: answer.ok for answer in after.answers(2)}  # type: ignore[union-attr]
    assert answers == {1: b"\x01\x00\x01", 2: b"\x01\x01"}
    after.move(3, "in", int32(9, 4), int32(0, 1))
    after.answers(1)
    assert torch.equal(after.page(0), rig.page(6))
    assert torch.equal(after.page(1), rig.page(5))


def test_a_save_waits_for_the_copy_that_brings_its_page(make: Callable[..., Rig]) -> None:
    rig, go = make(), threading.Event()
    rig.stream.submit(go.wait)  # type: ignore[arg-type]
    rig.move(1, "out", int32(0), int32(5))
    rig.move(2, "save", int32(0), keys=keys(5))
    assert rig.transfers.collect() == []
    assert rig.transfers.event(1) is not None
    go.set()
    assert [answer.number for answer in rig.answers(2)] == [1, 2]  # type: ignore[union-attr]
    assert rig.transfers.event(1) is None
    rig.move(3, "load", int32(1), keys=keys(5))
    rig.answers(1)
    assert torch.equal(rig.host[1], rig.host[0])


def test_what_a_dead_scheduler_asked_for_is_dropped_even_if_its_turn_comes_later(
    make: Callable[..., Rig],
) -> None:
    rig, go = make(), threading.Event()
    rig.stream.submit(go.wait)  # type: ignore[arg-type]
    rig.move(1, "out", int32(0), int32(5))
    rig.move(2, "save", int32(0), keys=keys(5))
    rig.transfers.forget()
    assert not rig.transfers.idle
    go.set()
    assert [answer.number for answer in rig.answers(1)] == [1]  # type: ignore[union-attr]
    assert rig.transfers.idle
    rig.transfers.introduce()
    rig.move(1, "load", int32(0), keys=keys(5))
    assert rig.answers(1) == [m.Moved(1, b"\x00", pytest.approx(0, abs=10))]


def test_what_was_moved_is_counted_in_bytes(make: Callable[..., Rig]) -> None:
    rig = make()
    rig.move(1, "out", int32(0, 1), int32(5, 6))
    rig.move(2, "save", int32(0, 1), keys=keys(5, 6))
    rig.answers(2)
    rig.move(3, "load", int32(2, 3), keys=keys(5, 9))
    rig.move(4, "in", int32(0), int32(0))
    rig.answers(2)
    counts = {name: amount for name, amount in rig.transfers.take_counts() if amount}
    assert counts == {
        "kv_out_bytes_total": 2 * SHAPE.bytes,
        "kv_saved_bytes_total": 2 * SHAPE.bytes,
        "kv_loaded_bytes_total": SHAPE.bytes,
        "kv_in_bytes_total": SHAPE.bytes,
    }
    assert rig.transfers.take_counts() == [] or not any(amount for _, amount in rig.transfers.take_counts())


def test_a_disk_move_without_a_disk_is_a_bug() -> None:
    device = CpuDevice(lambda: None)
    stream, host = device.stream(), allocate_host(SHAPE, 1, CPU)
    mover = HostMover(SHAPE.allocate(1, CPU), host)
    transfers = Transfers(device, stream, mover, host, None, SHAPE.bytes, lambda: None)
    with pytest.raises(RuntimeError, match="move 1 is a save, and there is no disk"):
        transfers.start(m.Move(1, "save", int32(0), keys=keys(1)))
    device.close()
