"""Rings of variable-length records in shared memory: one writer, one or more readers, no locks.

Layout: a header page, then `capacity` bytes of data. Positions are 64-bit byte counts that only grow; the
place of position p is p mod capacity. The writer alone stores `tail`, each reader alone its `head`, each on
cache lines of its own; a side keeps its copy of the other's counter and reloads it only when that copy says
"full" or "empty". With several readers every one gets every record, and the writer waits for the slowest.
One more word, `vigil`, is for whoever waits (`shm.channel`): the ring itself makes nothing of it.

A record is contiguous and 16-byte aligned: its position, the length and the checksum of the payload, the
payload. Where it would wrap, a padding record fills the rest of the buffer. The checksum is 32 bits of XXH3,
which keeps up with the memory (a crc would cost more than the copies), and not 0 for an empty payload: no
record is read out of memory that nobody wrote.

Memory model. There are two synchronisation points:

* publish: the writer stores the record, then `tail`; a reader loads `tail`, then the record;
* consume: a reader copies the payload out, then stores `head`; the writer loads `head`, then overwrites.

Both need "earlier accesses before this store" on one side and "later accesses after this load" on the other.
x86-64 gives that in hardware (Intel SDM 3A, "Memory Ordering"; memcpy ends its non-temporal path with a
fence, and string moves are ordered before later stores); elsewhere `shm.fence` puts a barrier at each of the
four places, or refuses. The compiler cannot reorder across them: each access is a call into the interpreter.

A counter must be stored at once, never byte by byte. An item of a memoryview cast to "Q" is read and written
by CPython through a memcpy of constant size 8, which is one aligned move; `struct.pack_into("<Q")` stores
eight separate bytes. After a crash a ring is not attached to again: both ends get a fresh one.
"""

from __future__ import annotations

import struct

from xxhash import xxh3_64_intdigest as digest

from stretto.shm import memory
from stretto.shm.fence import fence

_PAGE = 4096
_FILE_MAGIC = int.from_bytes(b"stretto\x03", "little")
"""Its last byte is the version of the layout."""
_header = struct.Struct("=QII")
"""Of a record: its position, the length and the checksum of its payload."""
_RECORD_HEADER = _header.size
_PADDING = 2**32 - 1
"""Length and checksum of a padding record; no ring holds so much."""
_ALIGN = 16
_ROUND = _RECORD_HEADER + _ALIGN - 1
"""What a length grows by before it is cut to a multiple of `_ALIGN`: its record's size."""
_write_header, _read_header = _header.pack_into, _header.unpack_from
_CAPACITY, _READERS, _NAME_LENGTH = 1, 2, 3
"""Words of the header page, after the magic; the name's bytes follow."""
_NAME = slice(32, 128)
_TAIL, _HEAD, _LINE = 16, 32, 16
"""Words 16 apart: 128 bytes, because processors fetch lines of 64 bytes in pairs."""
_VIGIL = _PAGE // 8 - _LINE
MIN_CAPACITY = 128
MAX_READERS = (_VIGIL - _HEAD) // _LINE


class RingCorrupt(RuntimeError):
    """Memory holds what no correct peer writes: our bug, or a stray process; never an input error."""


def create(name: str, capacity: int, readers: int = 1) -> int:
    """Descriptor of a fresh ring of `capacity` data bytes, a power of two; `name` appears in errors."""
    title = name.encode()
    if capacity < MIN_CAPACITY or capacity & (capacity - 1):
        raise ValueError(f"capacity of ring {name} must be a power of two >= {MIN_CAPACITY}, not {capacity}")
    if not 1 <= readers <= MAX_READERS:
        raise ValueError(f"ring {name} can have 1 to {MAX_READERS} readers, not {readers}")
    if len(title) > _NAME.stop - _NAME.start:
        raise ValueError(f"ring name {name!r} is longer than {_NAME.stop - _NAME.start} bytes")
    fd = memory.create(name, _PAGE + capacity)
    with memory.attach(fd) as page, memoryview(page) as raw, raw.cast("Q") as words:
        words[0] = _FILE_MAGIC
        words[_CAPACITY], words[_READERS], words[_NAME_LENGTH] = capacity, readers, len(title)
        page[_NAME.start : _NAME.start + len(title)] = title
    return fd


class _End:
    """What writer and reader share: the mapping, checked once against its own header."""

    __slots__ = ("_capacity", "_fence", "_map", "_mask", "_readers", "_words", "max_record", "name")

    def __init__(self, fd: int) -> None:
        self._map = memory.attach(fd)
        self._words = memoryview(self._map).cast("Q")
        self._fence = fence()
        size = len(self._map)
        if size < _PAGE + MIN_CAPACITY or self._words[0] != _FILE_MAGIC:
            raise RingCorrupt(f"descriptor {fd} is not a ring of this version of Stretto")
        self._capacity, self._readers, length = self._words[1:4].tolist()
        self.name = self._map[_NAME][:length].decode(errors="replace")
        if size != _PAGE + self._capacity or self._capacity & (self._capacity - 1):
            raise RingCorrupt(f"ring {self.name}: capacity {self._capacity} in a file of {size} bytes")
        if not 1 <= self._readers <= MAX_READERS:
            raise RingCorrupt(f"ring {self.name}: {self._readers} readers")
        self._mask = self._capacity - 1
        self.max_record = self._capacity // 4 - _RECORD_HEADER
        """Largest payload in bytes: a record, header included, takes at most a quarter of the ring."""

    @property
    def capacity(self) -> int:
        """Data bytes."""
        return self._capacity

    def close(self) -> None:
        """Unmap; the object is of no use afterwards. The descriptor stays the caller's."""
        self._words.release()
        self._map.close()


class RingWriter(_End):
    """The writing end; at most one in all processes. Does not keep `fd`.

    Raises ValueError where `fd` is not sealed shared memory and RingCorrupt where it holds no ring.
    """

    __slots__ = ("_edge", "_limit", "_tail")

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self._tail = self._words[_TAIL]
        self._limit = self._free_until()
        self._edge = self._tail
        """Up to here records fit without a look at the readers or at the end of the buffer."""

    @property
    def position(self) -> int:
        """Bytes published so far, padding included: where the last record ends."""
        return self._tail

    def _free_until(self) -> int:
        """Sync point "consume": the position up to which every reader has let go of the buffer."""
        heads = self._words[_HEAD : _HEAD + _LINE * self._readers : _LINE].tolist()
        if self._fence:
            self._fence()
        for reader, head in enumerate(heads):
            if not 0 <= self._tail - head <= self._capacity:
                raise RingCorrupt(
                    f"ring {self.name}: reader {reader} is at {head}, the writer at {self._tail}"
                )
        return min(heads) + self._capacity

    def try_push(self, payload: bytes) -> bool:
        """Publish one record; False when the ring is full. Raises ValueError beyond `max_record` bytes."""
        length = len(payload)
        if length > self.max_record:
            raise ValueError(f"record of {length} bytes; ring {self.name} takes at most {self.max_record}")
        size = (length + _ROUND) & -_ALIGN
        if self._tail + size > self._edge and not self._make_room(size):
            return False
        tail = self._tail
        at = _PAGE + (tail & self._mask)
        start = at + _RECORD_HEADER
        _write_header(self._map, at, tail, length, digest(payload) >> 32)
        self._map[start : start + length] = payload
        if self._fence:
            self._fence()
        self._words[_TAIL] = self._tail = tail + size  # sync point "publish"
        return True

    def _make_room(self, size: int) -> bool:
        """Pad to the end of the buffer where a record of `size` would wrap; False when the ring is full."""
        lap = (self._tail | self._mask) + 1
        start = self._tail if self._tail + size <= lap else lap
        if start + size > self._limit:
            self._limit = self._free_until()
            if start + size > self._limit:
                return False
        if start == lap:
            at = _PAGE + (self._tail & self._mask)
            _write_header(self._map, at, self._tail, _PADDING, _PADDING)
            self._tail, lap = lap, lap + self._capacity
        self._edge = min(self._limit, lap)
        return True

    def watched(self) -> bool:
        """Whether the reader keeps its `vigil`."""
        return self._words[_VIGIL] == 1


class RingReader(_End):
    """The end of reader number `reader`; at most one of each number in all processes. Does not keep `fd`.

    Raises ValueError where `fd` is not sealed shared memory and RingCorrupt where it holds no such ring.
    """

    __slots__ = ("_slot", "_tail", "_vigil", "position")

    def __init__(self, fd: int, reader: int = 0) -> None:
        super().__init__(fd)
        if not 0 <= reader < self._readers:
            raise ValueError(f"ring {self.name} has {self._readers} readers: there is no reader {reader}")
        self._slot = _HEAD + _LINE * reader
        self.position = self._tail = self._words[self._slot]
        """Bytes consumed so far."""
        self._vigil = False

    def behind(self) -> bool:
        """Whether there seems to be a record; `try_pop` looks whether there is."""
        return self._words[_TAIL] != self.position

    def keep_vigil(self, keep: bool) -> None:
        """Tell the writer that this reader looks (`behind`) by itself, or that it does not any more."""
        if keep is not self._vigil:  # the writer's copy of that cache line stays valid meanwhile
            self._words[_VIGIL] = self._vigil = keep

    def published(self) -> int:
        """Sync point "publish": the position up to which records can be read."""
        tail = self._words[_TAIL]
        if self._fence:
            self._fence()
        if not 0 <= tail - self.position <= self._capacity or tail % _ALIGN:
            raise self._corrupt(self.position, f"the writer claims to be at {tail}")
        self._tail = tail
        return tail

    def try_pop(self) -> bytes | None:
        """The next record; None when there is none. Raises RingCorrupt, and then stays where it is."""
        if self.position == self._tail:
            self.published()
        return self.pop_seen()

    def pop_seen(self) -> bytes | None:
        """As `try_pop`, of those records that the last call of `published` saw."""
        head = self.position
        if head == self._tail:
            return None
        at = _PAGE + (head & self._mask)
        position, length, check = _read_header(self._map, at)
        if position != head:
            raise self._corrupt(head, "the record belongs to another position")
        end = head + ((length + _ROUND) & -_ALIGN)
        if end > self._tail:
            self._skip_padding(head, length, check)
            return self.pop_seen()
        start = at + _RECORD_HEADER
        payload = self._map[start : start + length]
        if digest(payload) >> 32 != check:
            raise self._corrupt(head, f"the checksum over {length} bytes is wrong")
        if self._fence:
            self._fence()
        self._words[self._slot] = self.position = end  # sync point "consume"
        return payload

    def _skip_padding(self, head: int, length: int, check: int) -> None:
        """Go on at the start of the buffer, if that is what the record at `head` says."""
        start = (head | self._mask) + 1
        if length != _PADDING or check != _PADDING or start >= self._tail:
            raise self._corrupt(head, f"a record of {length} bytes does not end before {self._tail}")
        self.position = start

    def _corrupt(self, position: int, what: str) -> RingCorrupt:
        return RingCorrupt(f"ring {self.name} at position {position}: {what}")
