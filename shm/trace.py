"""Spans of time in shared memory: one section per process, which it alone writes and all may read.

A recording outlives the process that made it, and needs no collecting: whoever has the descriptor reads every
section, also that of a process that has died. Labels stand in the section too, so that it explains itself.

A section holds a fixed number of records; once it is full, later ones are counted and dropped. A record is
stored before the count that publishes it, by the rules of `shm.ring`. Pages that were never written take no
memory.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from stretto.shm import memory
from stretto.shm.fence import fence

RECORDS = 1 << 18
"""Per section, 10 MiB: at 500 steps per second, half a minute of the busiest role."""

_MAGIC = int.from_bytes(b"strettra", "little")
_SECTIONS, _CAPACITY = 1, 2
"""Words of the header, after the magic; the sections' names follow, then the sections, by pages."""
_NAME_BYTES = 64
_PAGE = 4096
_SINCE, _COUNT, _DROPPED, _LABELS = range(4)
"""Words of a section's head; its labels follow, then its records."""
_LABEL_BYTES = 128
MAX_LABELS = 127
_HEAD_BYTES = _LABEL_BYTES * (1 + MAX_LABELS)
_RECORD = struct.Struct("=5q")


class Record(NamedTuple):
    """A span, in `time.monotonic_ns()` nanoseconds; what `a` and `b` are, the label tells."""

    label: int
    start: int
    end: int
    a: int
    b: int


class Recording(NamedTuple):
    """What a section holds."""

    since: int
    """Names the recording: the time at which it was started."""
    labels: list[str]
    records: list[Record]
    dropped: int


class Section:
    """One process's part. `begin` comes before everything that writes."""

    def __init__(self, words: memoryview[int], raw: memoryview[int], capacity: int) -> None:
        self._words, self._raw, self._capacity = words, raw, capacity
        self._fence = fence()
        self._count = 0

    def begin(self, since: int) -> None:
        """Go on with the recording of this name, or forget all and start it."""
        words = self._words
        if words[_SINCE] != since:
            words[_COUNT] = words[_DROPPED] = words[_LABELS] = 0
            words[_SINCE] = since
        self._count = words[_COUNT]

    def label(self, text: str) -> int:
        """The number of a label, which is added if it is new. Raises ValueError where it does not fit."""
        known = self._read_labels()
        if text in known:
            return known.index(text)
        data = text.encode()
        if len(data) > _LABEL_BYTES or len(known) == MAX_LABELS:
            raise ValueError(f"label {text!r} does not fit: {MAX_LABELS} labels of {_LABEL_BYTES} bytes")
        at = _LABEL_BYTES * (1 + len(known))
        self._raw[at : at + _LABEL_BYTES] = data.ljust(_LABEL_BYTES, b"\0")
        self._words[_LABELS] = len(known) + 1
        return len(known)

    def record(self, label: int, start: int, end: int, a: int = 0, b: int = 0) -> None:
        """Add a span."""
        count = self._count
        if count == self._capacity:
            self._words[_DROPPED] += 1
            return
        _RECORD.pack_into(self._raw, _HEAD_BYTES + count * _RECORD.size, label, start, end, a, b)
        if self._fence:
            self._fence()
        self._words[_COUNT] = self._count = count + 1

    def read(self) -> Recording:
        """What has been recorded so far; for any process, at any time."""
        count = self._words[_COUNT]
        if self._fence:
            self._fence()
        end = _HEAD_BYTES + count * _RECORD.size
        records = [Record(*fields) for fields in _RECORD.iter_unpack(self._raw[_HEAD_BYTES:end])]
        return Recording(self._words[_SINCE], self._read_labels(), records, self._words[_DROPPED])

    def _read_labels(self) -> list[str]:
        starts = range(_LABEL_BYTES, _LABEL_BYTES * (1 + self._words[_LABELS]), _LABEL_BYTES)
        return [bytes(self._raw[at : at + _LABEL_BYTES]).rstrip(b"\0").decode() for at in starts]


class Traces:
    """A view of all sections. Does not keep `fd`; raises ValueError where that is no trace memory."""

    def __init__(self, fd: int) -> None:
        whole = memoryview(memory.attach(fd))
        words = whole.cast("q")
        if words[0] != _MAGIC:
            raise ValueError(f"descriptor {fd} is not trace memory of this version of Stretto")
        count, capacity = words[_SECTIONS], words[_CAPACITY]
        size, first = _section_bytes(capacity), _paged(_NAME_BYTES * (1 + count))
        self._sections: dict[str, Section] = {}
        for i in range(count):
            name = bytes(whole[_NAME_BYTES * (i + 1) : _NAME_BYTES * (i + 2)]).rstrip(b"\0").decode()
            raw = whole[first + i * size : first + (i + 1) * size]
            self._sections[name] = Section(raw.cast("q"), raw, capacity)

    @staticmethod
    def create(names: list[str], capacity: int = RECORDS) -> int:
        """Descriptor of fresh memory with a section of `capacity` records for each name."""
        encoded = [name.encode() for name in names]
        if len(set(encoded)) < len(names) or any(len(name) > _NAME_BYTES for name in encoded):
            raise ValueError(f"sections need names that differ, of {_NAME_BYTES} bytes at most: {names}")
        first = _paged(_NAME_BYTES * (1 + len(names)))
        fd = memory.create("trace", first + len(names) * _section_bytes(capacity))
        with memory.attach(fd) as page, memoryview(page) as raw, raw.cast("q") as words:
            words[0], words[_SECTIONS], words[_CAPACITY] = _MAGIC, len(names), capacity
            for i, name in enumerate(encoded, 1):
                page[i * _NAME_BYTES : i * _NAME_BYTES + len(name)] = name
        return fd

    @property
    def names(self) -> list[str]:
        """One per section, in order."""
        return list(self._sections)

    def section(self, name: str) -> Section:
        """The section of one process. Raises KeyError for a name that has none."""
        return self._sections[name]


def _paged(size: int) -> int:
    return -(-size // _PAGE) * _PAGE


def _section_bytes(capacity: int) -> int:
    return _paged(_HEAD_BYTES + capacity * _RECORD.size)
