"""`torch.cuda` played by a log: work is done at once, and what the log shows is who waits for whom."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Iterator
from typing import Any


class Event:
    def __init__(self, cuda: Cuda, **options: bool) -> None:
        self.cuda, self.options = cuda, options
        self.stream: Stream | None = None
        self.at = 0.0
        self.host = threading.get_ident()

    def record(self, stream: Stream) -> None:
        self.stream, self.at = stream, time.monotonic()
        self.cuda.log.append(("record", stream.name, self))

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        if self.cuda.broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        if threading.get_ident() == self.host and self.stream:
            self.cuda.log.append(("synchronize", self.stream.name, self))

    def elapsed_time(self, other: Event) -> float:
        return (other.at - self.at) * 1e3


class Stream:
    def __init__(self, cuda: Cuda, name: str) -> None:
        self.cuda, self.name = cuda, name

    def wait_event(self, event: Event) -> None:
        self.cuda.log.append(("wait", self.name, event))

    def wait_stream(self, stream: Stream) -> None:
        self.cuda.log.append(("wait", self.name, stream))


class Graph:
    """Notes what is captured between its two calls."""

    def __init__(self, cuda: Cuda) -> None:
        self.cuda = cuda

    def capture_begin(self, **options: Any) -> None:
        self.cuda.log.append(("capture", self.cuda.current.name, options))

    def capture_end(self) -> None:
        self.cuda.log.append(("captured", self.cuda.current.name, self))

    def replay(self) -> None:
        self.cuda.log.append(("replay", self.cuda.current.name, self))


class Cuda:
    """Plays `torch.cuda`. Streams are named in the order in which the device makes them."""

    def __init__(self) -> None:
        self.log: list[tuple[str, str, Any]] = []
        self.names = iter(("to_device", "to_host", "clock", "compute"))
        self.current = self.default = Stream(self, "default")
        self.Event = functools.partial(Event, self)
        self.CUDAGraph = functools.partial(Graph, self)
        self.broken = False

    def graph_pool_handle(self) -> str:
        self.log.append(("pool", self.current.name, None))
        return "pool"

    def Stream(self) -> Stream:
        return Stream(self, next(self.names))

    def current_stream(self) -> Stream:
        return self.current

    def mem_get_info(self) -> tuple[int, int]:
        return 123, 456

    @contextlib.contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before, self.current = self.current, stream
        yield
        self.current = before

    def since(self, mark: int) -> list[tuple[str, str]]:
        return [(what, where) for what, where, _ in self.log[mark:]]
