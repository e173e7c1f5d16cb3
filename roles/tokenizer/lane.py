"""A lane for long prompts: one at a time on a thread, while the loop serves the others and its heartbeat.

Encoding releases the interpreter lock. Text of the worst kind (digits, to a tokenizer that splits them)
takes 5 s per megabyte, so that a body of the largest size would stop the loop for longer than a heartbeat
may be late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from stretto.roles.messages import Fault, Request, Submit
from stretto.roles.tokenizer.choices import uid_count


class Prepared(NamedTuple):
    """What became of a long request."""

    message: Submit
    outcome: list[Request] | Fault
    cancelled: bool
    """Its cancel came meanwhile, and is to follow it."""


class Lane:
    """Holds a request being prepared and at most one that waits behind it."""

    def __init__(self, prepare: Callable[[Submit], list[Request] | Fault], wake: Callable[[], None]) -> None:
        """`prepare` runs on the thread; `wake` is called on the loop when `take` has something."""
        self._prepare = prepare
        self._wake = wake
        self._running: tuple[Submit, asyncio.Future[list[Request] | Fault]] | None = None
        self._waiting: Submit | None = None
        self._cancelled = False

    @property
    def full(self) -> bool:
        """One more cannot be added: leave the mailbox alone, so that no cancel is read before its request."""
        return self._waiting is not None

    def add(self, message: Submit) -> None:
        """Prepare this one, as soon as the thread is free; only while not `full`."""
        if self._running is not None:
            self._waiting = message
            return
        future = asyncio.get_running_loop().run_in_executor(None, self._prepare, message)
        future.add_done_callback(lambda _: self._wake())
        self._running = message, future

    def cancel(self, uid: int) -> bool:
        """True when that request, or a choice of it, is here: then its `Prepared` says so."""
        if self._running is None or not _has(self._running[0], uid):
            return False
        self._cancelled = True
        return True

    def take(self) -> Prepared | None:
        """A request that is done; starts the one behind it. Raises what `prepare` raised."""
        if self._running is None or not self._running[1].done():
            return None
        (message, future), cancelled, waiting = self._running, self._cancelled, self._waiting
        self._running, self._cancelled, self._waiting = None, False, None
        if waiting is not None:
            self.add(waiting)
        return Prepared(message, future.result(), cancelled)


def _has(message: Submit, uid: int) -> bool:
    return message.uid <= uid < message.uid + uid_count(message.params)
