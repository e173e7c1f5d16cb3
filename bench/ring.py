"""What a message between two processes costs: `stretto bench ring`.

Microseconds of a round trip, both sides asleep until the other has sent: a ring with its bells
(`shm.channel`) beside ZeroMQ over ipc and a `multiprocessing.Pipe`; and the ring with both sides looking for
`SPIN_SECONDS` before they sleep, as `--spin-us` makes roles do, which needs cores to spare. The transports
take turns, so that a machine which speeds up or slows down does so for all of them. The last column is push +
pop of a ring in one process: what is left when nobody has to be woken.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import click
import numpy as np
import zmq

from stretto.bench.options import Positive, described
from stretto.bench.plot import Chart
from stretto.bench.report import Report, progress, report_options
from stretto.shm import bell, ring
from stretto.shm.channel import Receiver, Sender, rest, spin

SIZES = (256, 16384)
"""Payload bytes: a step's plan or result at small batch; a prompt chunk or a large batch."""
CAPACITY = 1 << 20
SPIN_SECONDS = 1e-3
TURNS = 5
WARM_ROUNDS = 200


class End(Protocol):
    """One side of a connection."""

    def send(self, payload: bytes) -> None: ...
    def receive(self) -> bytes: ...


class RingEnd:
    """A ring in each direction; descriptors as (memory, items, space) to send on, then to receive on."""

    def __init__(self, *fds: int) -> None:
        self._sender, self._receiver = Sender(*fds[:3]), Receiver(*fds[3:])
        self._receivers = (self._receiver,)
        self.send = self._sender.send

    def receive(self) -> bytes:
        while True:
            bell.wait(self._receiver.bell_fd)
            self._receiver.hear()
            if (payload := self._receiver.receive()) is not None:
                return payload


class SpinningEnd(RingEnd):
    """The same, which looks for a while before it sleeps."""

    def receive(self) -> bytes:
        while (payload := self._receiver.receive()) is None:
            if not (spin(self._receivers, SPIN_SECONDS) or rest(self._receivers)):
                bell.wait(self._receiver.bell_fd)
                self._receiver.hear()
        return payload


class ZmqEnd:
    """A PAIR socket over ipc."""

    def __init__(self, address: str, bind: bool) -> None:
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PAIR)
        self._socket.setsockopt(zmq.LINGER, 0)
        (self._socket.bind if bind else self._socket.connect)(address)

    def send(self, payload: bytes) -> None:
        self._socket.send(payload)

    def receive(self) -> bytes:
        return self._socket.recv()


class PipeEnd:
    """A Unix socket pair with length prefixes."""

    def __init__(self, connection: Connection) -> None:
        self.send, self.receive = connection.send_bytes, connection.recv_bytes


@contextmanager
def ring_ends(kind: type[RingEnd] = RingEnd) -> Iterator[tuple[End, list[str], list[int]]]:
    """Our end, what the child needs to make its own, and the descriptors that it inherits."""
    there, back = ([ring.create("bench", CAPACITY), bell.create(), bell.create()] for _ in range(2))
    yield kind(*map(os.dup, there + back)), [str(fd) for fd in back + there], back + there


@contextmanager
def zmq_ends() -> Iterator[tuple[End, list[str], list[int]]]:
    """As `ring_ends`."""
    with tempfile.TemporaryDirectory() as directory:
        address = f"ipc://{directory}/bench"
        yield ZmqEnd(address, bind=True), [address], []


@contextmanager
def pipe_ends() -> Iterator[tuple[End, list[str], list[int]]]:
    """As `ring_ends`."""
    ours, theirs = Pipe()
    yield PipeEnd(ours), [str(theirs.fileno())], [theirs.fileno()]
    theirs.close()


def child_end(kind: str, arguments: Sequence[str]) -> End:
    """The other side of `kind`, in the child."""
    if kind == "zmq ipc":
        return ZmqEnd(arguments[0], bind=False)
    fds = map(int, arguments)
    return PipeEnd(Connection(next(fds))) if kind == "pipe" else RINGS[kind](*fds)


RINGS = {"ring": RingEnd, "ring, spin": SpinningEnd}
KINDS: dict[str, Callable[[], AbstractContextManager[tuple[End, list[str], list[int]]]]] = {
    **{name: partial(ring_ends, kind) for name, kind in RINGS.items()},
    "zmq ipc": zmq_ends,
    "pipe": pipe_ends,
}


def echo_back(kind: str, arguments: Sequence[str]) -> None:
    """The child: send back what comes, until an empty payload."""
    end = child_end(kind, arguments)
    while payload := end.receive():
        end.send(payload)


@contextmanager
def connected(kind: str) -> Iterator[End]:
    """Our end of a connection to an echoing process."""
    with KINDS[kind]() as (end, arguments, fds):
        command = [sys.executable, "-m", "stretto.bench.ring", "--echo", kind, *arguments]
        with subprocess.Popen(command, pass_fds=fds):
            try:
                yield end
            finally:
                end.send(b"")


def round_trips(end: End, size: int, rounds: int) -> list[float]:
    """Microseconds of each of `rounds` round trips."""
    payload, took = os.urandom(size), []
    for _ in range(WARM_ROUNDS + rounds):
        start = time.perf_counter()
        end.send(payload)
        end.receive()
        took.append(1e6 * (time.perf_counter() - start))
    return took[WARM_ROUNDS:]


def push_pop(size: int, rounds: int) -> float:
    """Microseconds of a push and a pop without any waiting, median of some turns."""
    fd = ring.create("bench", CAPACITY)
    writer, reader = ring.RingWriter(fd), ring.RingReader(fd)
    os.close(fd)
    payload, took = os.urandom(size), []
    for _ in range(TURNS):
        start = time.perf_counter()
        for _ in range(rounds):
            writer.try_push(payload)
            reader.try_pop()
        took.append(1e6 * (time.perf_counter() - start) / rounds)
    return round(float(np.median(took)), 2)


class Row(NamedTuple):
    """Figures of one transport at one size, microseconds; the median turn's."""

    kind: str
    bytes: int
    p50: float
    p99: float
    p50_ratio: float
    """Its p50 over the ring's."""


def measure(rounds: int) -> list[Row]:
    """All transports at all sizes, `rounds` round trips each, in turns."""
    turns: dict[tuple[int, str], list[Any]] = {(size, kind): [] for size in SIZES for kind in KINDS}
    with ExitStack() as stack:
        ends = {kind: stack.enter_context(connected(kind)) for kind in KINDS}
        for _ in progress(range(TURNS), unit="turn"):
            for (size, kind), percentiles in turns.items():
                percentiles.append(np.percentile(round_trips(ends[kind], size, rounds // TURNS), (50, 99)))
    medians = {key: np.median(percentiles, axis=0).tolist() for key, percentiles in turns.items()}
    return [
        Row(kind, size, round(p50, 1), round(p99, 1), round(p50 / medians[size, "ring"][0], 2))
        for (size, kind), (p50, p99) in medians.items()
    ]


def show(rows: list[Row], alone: dict[int, float]) -> None:
    """Print the table."""
    print(f"{'bytes':>6}  {'transport':<11}{'p50 us':>8}{'p99 us':>8}{'p50 / ring':>12}{'push+pop us':>13}")
    for row in rows:
        own = f"{alone[row.bytes]:13.2f}" if row.kind == "ring" else ""
        print(f"{row.bytes:>6}  {row.kind:<11}{row.p50:8.1f}{row.p99:8.1f}{row.p50_ratio:12.2f}{own}")


@click.command("ring", help=described(__doc__))
@click.option(
    "--rounds", type=Positive, default=10_000, show_default=True, help="Round trips per transport and size."
)
@click.option("--echo", help="The child's side of this transport.", hidden=True)
@click.argument("ends", nargs=-1)
@report_options
def main(
    rounds: int, echo: str | None, ends: tuple[str, ...], json_file: Path | None, plot_file: Path | None
) -> None:
    """Measure and report."""
    if echo is not None:
        echo_back(echo, ends)
        return
    report = Report("ring", json_file, plot_file)
    rows, alone = measure(rounds), {size: push_pop(size, rounds) for size in SIZES}
    show(rows, alone)
    trips = {f"{size} bytes": [row.p50 for row in rows if row.bytes == size] for size in SIZES}
    chart = Chart("Round trip between two processes", "bars", list(KINDS), trips, y_label="us, p50")
    figures = {"rounds": rounds, "round_trip_us": [row._asdict() for row in rows], "push_pop_us": alone}
    report.publish(figures, chart)


if __name__ == "__main__":
    main()
