"""The thread that reads and writes the file store, so that neither the loop nor the device waits for a disk.

The directory is read first, while the model is loaded. Then loads come before saves, for a request waits for
them. The scheduler bounds how much is asked for at once.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from stretto.roles import messages as m
from stretto.roles.executor.disk_kv import DiskKV


@dataclass(frozen=True)
class DiskTask:
    """Pages to be saved or loaded, and the host memory of each."""

    number: int
    save: bool
    keys: list[bytes]
    pages: list[memoryview]
    era: int = 0
    """`DiskWorker.era` when it was asked for."""


class DiskWorker:
    """Does tasks and gathers answers; `wake` is called on its thread when there is one."""

    def __init__(self, store: DiskKV, wake: Callable[[], None]) -> None:
        self._store, self._wake = store, wake
        self._changed = threading.Condition()
        """Guards the next seven."""
        self.era = 0
        """Tasks of earlier ones are forgotten."""
        self._loads: deque[DiskTask] = deque()
        self._saves: deque[DiskTask] = deque()
        self._state: Literal["reading", "waiting", "working", "closing"] = "reading"
        self._listing: list[m.Shelved] | None = None
        """What the directory held at the start, until it is told."""
        self._asked = False
        """Somebody wants to know what there is."""
        self._answers: list[m.Moved | m.Shelved] = []
        self._thread = threading.Thread(target=self._work, name="stretto-disk", daemon=True)
        self._thread.start()

    @property
    def errors(self) -> int:
        """Pages that could not be written, read or trusted, so far."""
        return self._store.errors

    @property
    def idle(self) -> bool:
        """Whether nothing that was asked for is being done or waits."""
        with self._changed:
            return self._state in ("reading", "waiting") and self._has_nothing

    @property
    def indexed(self) -> bool:
        """Whether the directory has been read."""
        with self._changed:
            return self._state != "reading"

    def give(self, task: DiskTask) -> None:
        """Do this when its turn comes; from any thread."""
        with self._changed:
            if task.era == self.era:
                (self._saves if task.save else self._loads).append(task)
                self._changed.notify()

    def introduce(self) -> list[m.Shelved]:
        """What there is, where that is known by now; `collect` tells it otherwise. Only while idle."""
        with self._changed:
            listing, self._listing = self._listing, None
            self._asked = listing is None
            self._changed.notify()
            return listing or []

    def forget(self) -> None:
        """Drop what has not begun, also what is yet to be given."""
        with self._changed:
            self.era += 1
            self._asked = False
            self._loads.clear()
            self._saves.clear()

    def collect(self) -> list[m.Moved | m.Shelved]:
        """Answers since the last call."""
        with self._changed:
            answers, self._answers = self._answers, []
        return answers

    def close(self) -> None:
        """Finish what has begun, and end the thread."""
        self.forget()
        with self._changed:
            self._changed.wait_for(lambda: self._state == "waiting")
            self._state = "closing"
            self._changed.notify()
        self._thread.join()

    # What follows runs on the thread.

    def _work(self) -> None:
        self._begin(self._listed())
        while (task := self._next()) != "closing":
            self._tell(self._listed() if task == "listing" else self._done(task))

    def _begin(self, listing: list[m.Shelved]) -> None:
        with self._changed:
            asked, self._asked = self._asked, False
            if not asked:
                self._listing = listing
        self._tell(listing if asked else [])

    def _next(self) -> DiskTask | Literal["listing", "closing"]:
        with self._changed:
            self._changed.wait_for(lambda: self._state == "closing" or not self._has_nothing)
            if self._state == "closing":
                return "closing"
            self._state = "working"
            if self._asked:
                self._asked = False
                return "listing"
            return (self._loads or self._saves).popleft()

    @property
    def _has_nothing(self) -> bool:
        return not (self._asked or self._loads or self._saves)

    def _tell(self, answers: Sequence[m.Moved | m.Shelved]) -> None:
        with self._changed:
            self._answers.extend(answers)
            self._state = "waiting"
            self._changed.notify()
        self._wake()

    def _listed(self) -> list[m.Shelved]:
        return [m.Shelved(added=b"".join(keys)) for keys in self._store.index()]

    def _done(self, task: DiskTask) -> list[m.Moved | m.Shelved]:
        began = time.monotonic()
        act = self._store.save if task.save else self._store.load
        ok = bytes(act(key, page) for key, page in zip(task.keys, task.pages, strict=True))
        moved = m.Moved(task.number, ok, time.monotonic() - began)
        gone = self._store.take_gone()
        return [moved, m.Shelved(gone=b"".join(gone))] if gone else [moved]
