"""A lane for long texts: one at a time on a thread, while the loop serves the others and its heartbeat.

Encoding releases the interpreter lock. Text of the worst kind (digits, to a tokenizer that splits them)
takes 5 s per megabyte, so that a body of the largest size would stop the loop for longer than a heartbeat
may be late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from stretto.roles.messages import Detokenize, Request, Submit, ToGateway, Tokenize

Task = Submit | Tokenize | Detokenize
Outcome = list[Request] | ToGateway
"""Requests of a `Submit` that is not at fault, else the answer to its gateway."""


class Done(NamedTuple):
    """What became of a long task."""

    task: Task
    outcome: Outcome
    cancelled: list[int]
    """Uids of it whose cancels came meanwhile, and are to follow it."""


class Lane:
    """Holds a task that is being worked on and at most one that waits behind it."""

    def __init__(self, work: Callable[[Task], Outcome], wake: Callable[[], None]) -> None:
        """`work` runs on the thread; `wake` is called on the loop when `take` has something."""
        self._work = work
        self._wake = wake
        self._running: tuple[Task, asyncio.Future[Outcome]] | None = None
        self._waiting: Task | None = None
        self._cancelled: list[int] = []

    @property
    def full(self) -> bool:
        """One more cannot be added: leave the mailbox alone, so that no cancel is read before its request."""
        return self._waiting is not None

    def add(self, task: Task) -> None:
        """Work on this one, as soon as the thread is free; only while not `full`."""
        if self._running is not None:
            self._waiting = task
            return
        future = asyncio.get_running_loop().run_in_executor(None, self._work, task)
        future.add_done_callback(lambda _: self._wake())
        self._running = task, future

    def cancel(self, uid: int) -> bool:
        """True when that request, or a choice of it, is here: then its `Done` says so."""
        if self._running is None or not _has(self._running[0], uid):
            return False
        self._cancelled.append(uid)
        return True

    def take(self) -> Done | None:
        """A task that is done; starts the one behind it. Raises what `work` raised."""
        if self._running is None or not self._running[1].done():
            return None
        (task, future), cancelled, waiting = self._running, self._cancelled, self._waiting
        self._running, self._cancelled, self._waiting = None, [], None
        if waiting is not None:
            self.add(waiting)
        return Done(task, future.result(), cancelled)


def _has(task: Task, uid: int) -> bool:
    return isinstance(task, Submit) and task.uid <= uid < task.uid + task.params.width
