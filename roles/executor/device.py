"""Where steps run: what the runner may ask of a device, in the words of CUDA.

A *stream* does the work it is given in order, and giving returns before the work is done. An *event* marks
a point in a stream's order: it is done once everything given to that stream before it is done, and it knows
when that was. Other streams may wait for it; the host never does. It asks `done`, or lets `on_done` call
it.

Three kinds of buffers cross the border, and each kind says who may touch it when:

* `upload` takes what the host prepared for one step. The caller gives the arrays away: on a CPU the device
  works on the very same memory, while the host already prepares the next step in fresh arrays.
* The tensors that `upload` returns are for the work given to that stream before the next `upload`.
* An `Output` is written by work, then fetched. `host` may be read once the fetch's event is done, and the
  tensor may be written again once the host has read it.

Work that raises is a bug of ours. The device stops, calls `alarm`, and `check` raises what the work raised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch


class Event(Protocol):
    """A point in a stream's order; recorded at most once."""

    @property
    def done(self) -> bool:
        """Whether the stream has passed the event; never blocks."""

    @property
    def time(self) -> float:
        """When the stream passed it, in `time.monotonic()` seconds; only for an event that is done."""


class Stream(Protocol):
    """Work in order. All calls return at once, and all come from one thread."""

    def submit(self, work: Callable[[], None]) -> None:
        """Do `work` after everything given before."""

    def record(self, event: Event) -> None:
        """Let `event` be done once everything given before is done."""

    def wait(self, event: Event) -> None:
        """Do nothing given after this until `event`, already recorded on another stream, is done."""

    def catch_up(self) -> None:
        """Let work given after this see all that the calling thread has put on the device so far."""


class Output(Protocol):
    """A buffer of results: `tensor` on the device, `host` for the reader."""

    tensor: torch.Tensor
    host: np.ndarray

    def fetch(self, stream: Stream, event: Event) -> None:
        """Bring to `host` what the work given to `stream` so far writes; `event` is done when it is there,
        with all that was fetched before.
        """


class Device(Protocol):
    """A place with streams. `torch_device` is where its tensors live; `name` is for people."""

    name: str
    torch_device: torch.device

    def stream(self) -> Stream:
        """A new stream, which has caught up."""

    def event(self) -> Event:
        """A new event, not recorded yet."""

    def on_done(self, event: Event, callback: Callable[[], None]) -> None:
        """Call `callback` once the recorded `event` is done, on a device thread: it must be short."""

    def upload(self, stream: Stream, arrays: Sequence[np.ndarray]) -> list[torch.Tensor]:
        """The arrays as tensors that the work given to `stream` from now on may use."""

    def output(self, count: int, dtype: torch.dtype) -> Output:
        """A new one-dimensional output buffer."""

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """For work on a stream: what `work` would launch, as one launch that may be repeated there.

        `work` is looked at, not done. All memory that it touches must stay where it is, and whatever it
        decides, sizes above all, is decided for good. What it allocates belongs to the launch.
        """

    def check(self) -> None:
        """Raise what the device's work raised, if it did."""

    def free_memory(self) -> int:
        """Bytes that may still be allocated where the device's tensors live."""

    def total_memory(self) -> int:
        """Bytes that the device's tensors and everything else there have together."""

    def close(self) -> None:
        """Finish the work given so far, then end the device's threads."""
