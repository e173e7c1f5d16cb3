"""Moves of KV between tiers: those of the device on a stream of their own, those of the disk on its thread.

    out, in       ── the stream of transfers, in order, beside the steps; `Plan.after` makes a step wait
    save, load    ── the disk's thread, once the transfers before them are done

No transfer waits for a step: the pages that it reads are complete, and nothing in flight uses those that it
writes (`messages.Move`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch

from stretto.roles import messages as m
from stretto.roles.executor.device import Device, Event, Stream
from stretto.roles.executor.disk_worker import DiskTask, DiskWorker
from stretto.roles.executor.host_kv import Mover

Kind = Literal["out", "in", "save", "load"]
METRICS: dict[Kind, str] = {
    "out": "kv_out_bytes_total",
    "in": "kv_in_bytes_total",
    "save": "kv_saved_bytes_total",
    "load": "kv_loaded_bytes_total",
}


@dataclass(frozen=True)
class Transfer:
    """A move between device and host that has been given to the stream."""

    number: int
    kind: Kind
    pages: int
    began: Event
    ended: Event


class Transfers:
    """For the role's thread. `wake` is called, on some other thread, when there may be an answer.

    host: the host pool, [pages, ...], None where it is only modelled; disk: None where there is none;
    page_bytes: of a page, for the figures.
    """

    def __init__(
        self,
        device: Device,
        stream: Stream,
        mover: Mover,
        host: torch.Tensor | None,
        disk: DiskWorker | None,
        page_bytes: int,
        wake: Callable[[], None],
    ) -> None:
        self._device, self._stream, self._mover, self._disk, self._wake = device, stream, mover, disk, wake
        self._pages = None if host is None else host.view(torch.uint8).flatten(1).numpy()
        """uint8 [pages, bytes]"""
        self._transfers: dict[int, Transfer] = {}
        """By number, in order."""
        self._disk_kinds: dict[int, Kind] = {}
        """Of moves that the disk has yet to answer."""
        self._page_bytes, self._counts, self._errors = page_bytes, Counter[str](), 0

    @property
    def idle(self) -> bool:
        """Whether nothing is being done or waits."""
        return not self._transfers and (self._disk is None or self._disk.idle)

    def start(self, move: m.Move) -> None:
        """Begin a move."""
        host = _ints(move.host)
        match move.kind:
            case "out" | "in":
                work = self._mover.out if move.kind == "out" else self._mover.into
                self._transfer(move, len(host), partial(work, _ints(move.device), host))
            case "save" | "load":
                self._queue(move, host)

    def event(self, number: int) -> Event | None:
        """What is done once the transfer of that number is; None where it was done long ago."""
        transfer = self._transfers.get(number)
        return None if transfer is None else transfer.ended

    def collect(self) -> list[m.Moved | m.Shelved]:
        """Answers since the last call."""
        done = [transfer for transfer in self._transfers.values() if transfer.ended.done]
        for transfer in done:
            del self._transfers[transfer.number]
            self._count(transfer.kind, transfer.pages)
        answers: list[m.Moved | m.Shelved] = [_answer(transfer) for transfer in done]
        return answers if self._disk is None else answers + self._collect_disk(self._disk)

    def _collect_disk(self, disk: DiskWorker) -> list[m.Moved | m.Shelved]:
        answers = disk.collect()
        for answer in answers:
            if isinstance(answer, m.Moved):
                self._count(self._disk_kinds.pop(answer.number), sum(answer.ok))
        self._counts["kv_disk_errors_total"] += disk.errors - self._errors
        self._errors = disk.errors
        return answers

    def take_counts(self) -> list[tuple[str, int]]:
        """What was moved since the last call, under the names in `roles.metrics`."""
        counts, self._counts = self._counts, Counter[str]()
        return list(counts.items())

    def _count(self, kind: Kind, pages: int) -> None:
        self._counts[METRICS[kind]] += pages * self._page_bytes

    def forget(self) -> None:
        """Nobody wants the answers any more: drop what has not begun. `idle` says when the rest is done."""
        if self._disk is not None:
            self._disk.forget()

    @property
    def indexed(self) -> bool:
        """Whether it is known what the disk has."""
        return self._disk is None or self._disk.indexed

    def introduce(self) -> list[m.Shelved]:
        """What the disk has, for a new scheduler; what is not known yet comes later. Only while idle."""
        self.collect()
        self._disk_kinds.clear()
        return [] if self._disk is None else self._disk.introduce()

    def close(self) -> None:
        """End the disk's thread; the stream belongs to the device."""
        if self._disk is not None:
            self._disk.close()

    def _transfer(self, move: m.Move, pages: int, work: Callable[[], None]) -> None:
        began, ended = self._device.event(), self._device.event()
        self._stream.record(began)
        self._stream.submit(work)
        self._stream.record(ended)
        self._transfers[move.number] = Transfer(move.number, move.kind, pages, began, ended)
        self._device.on_done(ended, self._wake)

    def _queue(self, move: m.Move, host: np.ndarray) -> None:
        """Transfers given before may still read or write the host pages of this one."""
        if self._disk is None or self._pages is None:
            raise RuntimeError(f"move {move.number} is a {move.kind}, and there is no disk")
        keys = [move.keys[start : start + 16] for start in range(0, len(move.keys), 16)]
        pages = [memoryview(self._pages[page]) for page in host.tolist()]
        task = DiskTask(move.number, move.kind == "save", keys, pages, self._disk.era)
        self._disk_kinds[move.number] = move.kind
        before = self._device.event()
        self._stream.record(before)
        self._device.on_done(before, partial(self._disk.give, task))


def _ints(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.int32).copy()


def _answer(transfer: Transfer) -> m.Moved:
    return m.Moved(transfer.number, b"\x01" * transfer.pages, transfer.ended.time - transfer.began.time)
