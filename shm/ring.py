"""Rings of variable-length records in shared memory: one writer, one or more readers, no locks.

Layout: a header page, then `capacity` bytes of data. Positions are 64-bit byte counts that only grow; the
place of position p is p mod capacity. The writer alone stores `tail`, each reader alone its `head`, each on
cache lines of its own; a side keeps its copy of the other's counter and reloads it only when that copy says
"full" or "empty". With several readers every one gets every record, and the writer waits for the slowest.

A record is contiguous and 16-byte aligned: a word that mixes a constant with the record's position, a word
of checksum and length, the payload. Where it would wrap, a padding record fills the rest of the buffer.

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

from xxhash import xxh3_64_intdigest

from stretto.shm import memory
from stretto.shm.fence import fence

_PAGE = 4096
_FILE_MAGIC = int.from_bytes(b"stretto\x02", "little")
"""Its last byte is the version of the layout."""
_RECORD_MAGIC = 0x5EED_0FF1_CE00_0000
_PADDING = 2**64 - 1
_RECORD_HEADER = 16
_ALIGN = 16
_CAPACITY, _READERS, _NAME_LENGTH = 1, 2, 3
"""Words of the header page, after the magic; the name's bytes follow."""
_NAME = slice(32, 128)
_TAIL, _HEAD, _LINE = 16, 32, 16
"""Words 16 apart: 128 bytes, because processors fetch lines of 64 bytes in pairs."""
MIN_CAPACITY = 128
MAX_READERS = (_PAGE // 8 - _HEAD) // _LINE


class RingCorrupt(RuntimeError):
    """Memory holds what no correct peer writes: our bug, or a stray process; never an input error."""


def checksum(payload: bytes) -> int:
    """32 bits of XXH3, which keeps up with the memory; a crc would cost more than the copies."""
    return xxh3_64_intdigest(payload) >> 32


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

    __slots__ = ("_limit", "_tail")

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self._tail = self._words[_TAIL]
        self._limit = self._free_until()

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
        words, tail = self._words, self._tail
        size = (length + _RECORD_HEADER + _ALIGN - 1) & -_ALIGN
        offset = tail & self._mask
        left = self._capacity - offset
        end = tail + size if size <= left else tail + left + size
        if end > self._limit:
            self._limit = self._free_until()
            if end > self._limit:
                return False
        at = _PAGE + offset
        if size > left:
            words[at >> 3], words[(at >> 3) + 1] = tail ^ _RECORD_MAGIC, _PADDING
            tail, at = tail + left, _PAGE
        words[at >> 3] = tail ^ _RECORD_MAGIC
        words[(at >> 3) + 1] = checksum(payload) << 32 | length
        self._map[at + _RECORD_HEADER : at + _RECORD_HEADER + length] = payload
        if self._fence:
            self._fence()
        words[_TAIL] = self._tail = end  # sync point "publish"
        return True


class RingReader(_End):
    """The end of reader number `reader`; at most one of each number in all processes. Does not keep `fd`.

    Raises ValueError where `fd` is not sealed shared memory and RingCorrupt where it holds no such ring.
    """

    __slots__ = ("_slot", "_tail", "position")

    def __init__(self, fd: int, reader: int = 0) -> None:
        super().__init__(fd)
        if not 0 <= reader < self._readers:
            raise ValueError(f"ring {self.name} has {self._readers} readers: there is no reader {reader}")
        self._slot = _HEAD + _LINE * reader
        self.position = self._tail = self._words[self._slot]
        """Bytes consumed so far."""

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
        words, head = self._words, self.position
        if head == self._tail and self.published() == head:
            return None
        at = _PAGE + (head & self._mask)
        check = words[(at >> 3) + 1]
        if check == _PADDING and words[at >> 3] == head ^ _RECORD_MAGIC:
            head, at = head + self._capacity + _PAGE - at, _PAGE
            check = words[(at >> 3) + 1]
        length = check & 0xFFFFFFFF
        end = head + ((length + _RECORD_HEADER + _ALIGN - 1) & -_ALIGN)
        if words[at >> 3] != head ^ _RECORD_MAGIC:
            raise self._corrupt(head, "the record belongs to another position")
        if end > self._tail:
            raise self._corrupt(head, f"a record of {length} bytes does not end before {self._tail}")
        payload = self._map[at + _RECORD_HEADER : at + _RECORD_HEADER + length]
        if checksum(payload) != check >> 32:
            raise self._corrupt(head, f"the checksum over {length} bytes is wrong")
        if self._fence:
            self._fence()
        words[self._slot] = self.position = end  # sync point "consume"
        return payload

    def _corrupt(self, position: int, what: str) -> RingCorrupt:
        return RingCorrupt(f"ring {self.name} at position {position}: {what}")
