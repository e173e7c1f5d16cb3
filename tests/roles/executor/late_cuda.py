"""Plays `torch.cuda` as badly as it may: work is done late, and across streams in any order that is legal.

What has seen what is kept in vector clocks (Mattern, 1989): of each stream, and of the host, which sees what
an event marks when it finds the event done. So an access that nothing orders after another is found whatever
order happened to come about.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

Seen = dict[str, int]
"""By stream, how many of its items."""
HOST = "host"
PATIENCE = 12
"""Items after which the favourite among the streams changes."""


class Violation(AssertionError):
    """Something that a GPU would not forgive."""


@dataclass
class Mark:
    """One record of an event."""

    seen: Seen
    passed: bool = False
    at: float = 0.0
    callbacks: list[Callable[[], None]] = field(default_factory=list)


@dataclass
class Item:
    """Something given to a stream: work, a mark to pass or a mark to wait for."""

    seen: Seen
    work: Callable[[], None] | None = None
    passes: Mark | None = None
    waits: Mark | None = None


class Memory:
    """Buffers that streams share, by the address of their storage, and who touched them last."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self._last: dict[int, Seen] = {}
        self._kept: list[torch.Tensor] = []
        """All of them, so that nothing else comes to lie at their addresses."""

    def share(self, tensor: torch.Tensor, name: str) -> None:
        """Watch a buffer."""
        self._kept.append(tensor)
        self.names[tensor.untyped_storage().data_ptr()] = name
        self._last[tensor.untyped_storage().data_ptr()] = {}

    def touch(self, address: int, who: str, seen: Seen) -> None:
        """Raises Violation unless whoever touched the buffer before is known to have done so."""
        last = self._last[address]
        for other, number in last.items():
            if other != who and seen.get(other, 0) < number:
                raise Violation(f"{who} uses {self.names[address]} without having waited for {other}")
        last[who] = max(last.get(who, 0), seen[who])


class LateStream:
    """A queue. The world decides when its head is done."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.queue: deque[Item] = deque()
        self.seen: Seen = {name: 0}

    def put(self, **what: Any) -> Seen:
        """Queue an item; returns what will have been seen once it is done."""
        merge(self.seen, self.world.seen)
        self.seen[self.name] += 1
        self.queue.append(Item(dict(self.seen), **what))
        return dict(self.seen)

    def wait_event(self, event: LateEvent) -> None:
        if event.mark is not None:
            merge(self.seen, event.mark.seen)
            self.put(waits=event.mark)
            self.world.log.append(("wait", self.name))

    def wait_stream(self, stream: Any) -> None:
        """All that the host did before the stream was made is done."""

    @property
    def runnable(self) -> bool:
        """Whether the head may be done now."""
        return bool(self.queue) and (self.queue[0].waits is None or self.queue[0].waits.passed)

    def advance(self) -> None:
        """Do the head."""
        item = self.queue.popleft()
        if item.work is not None:
            self.world.log.append(("work", self.name))
            self.world.watch(self.name, item.seen, item.work)
        if item.passes is not None:
            item.passes.passed, item.passes.at = True, time.monotonic()
            for callback in item.passes.callbacks:
                callback()


class LateEvent:
    """See `torch.cuda.Event`. It can be recorded again: whoever waits already waits for the mark before."""

    def __init__(self, world: World, **options: bool) -> None:
        self.world, self.mark = world, None
        self.mark: Mark | None

    def record(self, stream: LateStream) -> None:
        mark = Mark({})
        mark.seen = stream.put(passes=mark)
        self.mark = mark
        self.world.log.append(("record", stream.name))

    def query(self) -> bool:
        self.world.progress(self.world.random.randrange(4))
        if self.mark is not None and self.mark.passed:
            merge(self.world.seen, self.mark.seen)
            return True
        return self.mark is None

    def synchronize(self) -> None:
        """Raises Violation where the host would wait for work that it does not know to be done."""
        if self.mark is None:
            return
        for name, number in self.mark.seen.items():
            if name not in self.world.may_wait_for and self.world.seen.get(name, 0) < number:
                raise Violation(f"the host waits for {name}")
        while not self.mark.passed:
            self.world.progress(1)
        merge(self.world.seen, self.mark.seen)

    def elapsed_time(self, other: LateEvent) -> float:
        assert self.mark is not None
        assert other.mark is not None
        return (other.mark.at - self.mark.at) * 1e3


class World:
    """All streams and the host. `watch` is given each piece of work, the stream's name, and what it may know
    to be done. Also `torch.cuda`, as far as `CudaDevice` goes.
    """

    def __init__(self, seed: int) -> None:
        self.random, self.log, self.memory = random.Random(seed), [], Memory()
        self.log: list[tuple[str, str]]
        self.seen: Seen = {HOST: 0}
        self.may_wait_for: set[str] = {HOST, "stream 0", "stream 1", "stream 2"}
        """Streams of the device's own: to the device, from it, and the clock's."""
        self.streams: list[LateStream] = []
        self.watch: Callable[[str, Seen, Callable[[], None]], None] = lambda name, seen, work: work()
        self._favours: list[float] = []
        self._done = 0

    def progress(self, items: int) -> None:
        """Do so many items, if there are any that may be done."""
        for _ in range(items):
            if self._done % PATIENCE == 0:
                self._favours = [self.random.random() for _ in self.streams]
            able = [stream for stream in self.streams if stream.runnable]
            if not able:
                return
            self._done += 1
            favours = dict(zip((s.name for s in self.streams), self._favours, strict=False))
            max(able, key=lambda stream: favours.get(stream.name, 0.0)).advance()

    def touch_from_host(self, address: int) -> None:
        """The host reads or writes a buffer, now."""
        self.seen[HOST] += 1
        self.memory.touch(address, HOST, self.seen)

    # What follows is the interface of torch.cuda.

    def Stream(self) -> LateStream:
        self.streams.append(LateStream(self, f"stream {len(self.streams)}"))
        return self.streams[-1]

    def Event(self, **options: bool) -> LateEvent:
        return LateEvent(self, **options)

    def current_stream(self) -> None:
        return None

    def mem_get_info(self) -> tuple[int, int]:
        return 1 << 30, 1 << 30

    @contextlib.contextmanager
    def stream(self, stream: LateStream) -> Iterator[None]:
        yield


def merge(seen: Seen, other: Seen) -> None:
    """Whoever has seen `seen` sees `other` too."""
    for name, number in other.items():
        seen[name] = max(seen.get(name, 0), number)
