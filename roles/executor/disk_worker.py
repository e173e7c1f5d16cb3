"""The thread that reads and writes the file store, so that neither the loop nor the device waits for a disk.

Reads come first: a request waits for them. The scheduler bounds how much is asked for at once.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
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
        """Guards the next five."""
        self.era = 0
        """Tasks of earlier ones are forgotten."""
        self._loads: deque[DiskTask] = deque()
        self._saves: deque[DiskTask] = deque()
        self._state: Literal["waiting", "listing", "working", "closing"] = "waiting"
        self._answers: list[m.Moved | m.Shelved] = []
        self._thread = threading.Thread(target=self._work, name="stretto-disk", daemon=True)
        self._thread.start()

    @property
    def errors(self) -> int:
        """Pages that could not be written, read or trusted, so far."""
        return self._store.errors

    @property
    def idle(self) -> bool:
        """Whether nothing is being done or waits."""
        with self._changed:
            return self._state == "waiting" and not self._loads and not self._saves

    def give(self, task: DiskTask) -> None:
        """Do this when its turn comes; from any thread."""
        with self._changed:
            if task.era == self.era:
                (self._saves if task.save else self._loads).append(task)
                self._changed.notify()

    def introduce(self) -> None:
        """Tell in `Shelved` what there is, before anything else; only while idle."""
        with self._changed:
            self._state = "listing"
            self._changed.notify()

    def forget(self) -> None:
        """Drop what has not begun, also what is yet to be given."""
        with self._changed:
            self.era += 1
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
        while (task := self._next()) != "closing":
            self._tell(self._listed() if task == "listing" else self._done(task))

    def _next(self) -> DiskTask | Literal["listing", "closing"]:
        with self._changed:
            self._changed.wait_for(lambda: self._state != "waiting" or self._loads or self._saves)
            if self._state in ("listing", "closing"):
                return self._state
            self._state = "working"
            return (self._loads or self._saves).popleft()

    def _tell(self, answers: list[m.Moved | m.Shelved]) -> None:
        with self._changed:
            self._answers.extend(answers)
            self._state = "waiting"
            self._changed.notify()
        self._wake()

    def _listed(self) -> list[m.Moved | m.Shelved]:
        return [m.Shelved(added=b"".join(keys)) for keys in self._store.index()]

    def _done(self, task: DiskTask) -> list[m.Moved | m.Shelved]:
        began = time.monotonic()
        act = self._store.save if task.save else self._store.load
        ok = bytes(act(key, page) for key, page in zip(task.keys, task.pages, strict=True))
        moved = m.Moved(task.number, ok, time.monotonic() - began)
        gone = self._store.take_gone()
        return [moved, m.Shelved(gone=b"".join(gone))] if gone else [moved]
