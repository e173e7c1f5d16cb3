"""Recording what a role does, span by span, into its section of the trace memory (`shm.trace`).

A role names the functions that are worth a span (`Role.probes`). While a recording runs, each of them is
replaced, where it is defined, by one that also takes the time; when it ends, the function itself is put back.
So a role that is not recorded does not even look at a flag.

What a span costs, `stretto bench profiling` measures.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from time import monotonic_ns
from typing import Any, NamedTuple

from stretto.shm.channel import Receiver, Sender
from stretto.shm.trace import Section

Function = Callable[..., Any]
Note = Callable[..., Sequence[int] | None]


class Label(NamedTuple):
    """What a record is, as text in the trace memory."""

    name: str
    args: tuple[str, ...] = ()
    """Names of the record's `a` and `b`; those without one mean nothing."""
    track: str = ""
    """Where it is drawn, if it is no work of the role's own loop."""
    edge: str = ""
    """The ring that was written or read."""

    def text(self) -> str:
        """The label in one string."""
        return "\t".join((self.name, self.track, self.edge, *self.args))

    @classmethod
    def parse(cls, text: str) -> Label:
        """The inverse of `text`."""
        name, track, edge, *args = text.split("\t")
        return cls(name, tuple(args), track, edge)


class Probe(NamedTuple):
    """A function of `owner`, a class or a module, and what makes of it one that records."""

    owner: Any
    function: str
    make: Callable[[Section, Function], Function]


def span(owner: Any, function: str, name: str, args: tuple[str, ...] = (), note: Note | None = None) -> Probe:
    """A probe that records each call, and of a coroutine each stretch in which it runs.

    `note(result, *arguments)` tells the values of `args`, two at most, or None: then this call is not worth
    a record. Calls that raise are not recorded.
    """

    def make(section: Section, original: Function) -> Function:
        label = section.label(Label(name, args).text())
        record = section.record
        if inspect.iscoroutinefunction(original):
            return lambda *given, **named: _stretches(
                original(*given, **named), lambda start: record(label, start, monotonic_ns())
            )

        def timed(*given: Any, **named: Any) -> Any:
            start = monotonic_ns()
            result = original(*given, **named)
            end = monotonic_ns()
            if note is None:
                record(label, start, end)
            elif (values := note(result, *given, **named)) is not None:
                record(label, start, end, *values)
            return result

        return timed

    return Probe(owner, function, make)


@types.coroutine
def _stretches(work: Coroutine[Any, Any, Any], ran: Callable[[int], None]) -> Generator[Any, Any, Any]:
    """Await `work`; tells `ran` after each stretch when it began. What it waits for others is left out."""
    resume: Callable[[Any], Any] = work.send
    value: Any = None
    while True:
        start = monotonic_ns()
        try:
            awaited = resume(value)
        except StopIteration as end:
            return end.value
        finally:
            ran(start)
        try:
            resume, value = work.send, (yield awaited)
        except BaseException as error:
            resume, value = work.throw, error


# Rings. A record that was sent at some position of a ring is received at the same position, so that both ends
# of its way are known without a stamp in it.

_RING_ARGS = ("position", "bytes")


def _sends(section: Section, send: Function) -> Function:
    labels: dict[str, int] = {}

    def traced(self: Sender, payload: bytes) -> None:
        start = monotonic_ns()
        send(self, payload)
        if not self.blocked:
            section.record(
                _of_edge(section, labels, "send", self.name),
                start,
                monotonic_ns(),
                self.position,
                len(payload),
            )

    return traced


def _receives(section: Section, drain: Function) -> Function:
    labels: dict[str, int] = {}

    def traced(self: Receiver) -> Iterator[bytes]:
        records = drain(self)
        while True:
            start = monotonic_ns()
            payload = next(records, None)
            if payload is None:
                return
            label = _of_edge(section, labels, "receive", self.name)
            section.record(label, start, monotonic_ns(), self.position, len(payload))
            yield payload

    return traced


def _of_edge(section: Section, labels: dict[str, int], name: str, edge: str) -> int:
    if edge not in labels:
        labels[edge] = section.label(Label(name, _RING_ARGS, edge=edge).text())
    return labels[edge]


RINGS = (Probe(Sender, "send", _sends), Probe(Receiver, "drain", _receives))
"""Probes of every role."""


class Recorder:
    """Puts probes in place for a recording, and takes them out again."""

    def __init__(self) -> None:
        self._originals: list[tuple[Any, str, Function]] = []

    def start(self, section: Section, probes: Iterable[Probe], since: int) -> None:
        """Record from now on; what the section holds of the same recording is kept."""
        self.stop()
        section.begin(since)
        for owner, function, make in probes:
            original = vars(owner)[function]
            self._originals.append((owner, function, original))
            setattr(owner, function, make(section, original))

    def stop(self) -> None:
        """Record no more."""
        while self._originals:
            setattr(*self._originals.pop())
