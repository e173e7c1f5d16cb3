import os
from collections import deque
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from stretto.shm import memory, ring
from stretto.shm.ring import RingCorrupt, RingReader, RingWriter

DATA = 4096
"""Where the first record begins in the file."""
TAIL, HEAD = 128, 256
"""Where the counters of the writer and of reader 0 are in the file."""


@contextmanager
def open_ring(capacity=256, readers=1):
    """Writer, readers and the raw bytes of a fresh ring."""
    fd = ring.create("a.0>b.0", capacity, readers)
    raw = memory.attach(fd)
    ends = [RingWriter(fd), *(RingReader(fd, i) for i in range(readers))]
    os.close(fd)
    try:
        yield ends[0], ends[1:], raw
    finally:
        for end in ends:
            end.close()
        raw.close()


def fill(writer, payload):
    """Push until full; how many went in."""
    count = 0
    while writer.try_push(payload):
        count += 1
    return count


def load(raw, at):
    return int.from_bytes(raw[at : at + 8], "little")


def store(raw, at, value):
    raw[at : at + 8] = value.to_bytes(8, "little")


def test_records_come_out_as_they_went_in():
    with open_ring() as (writer, [reader], _):
        records = [b"", b"x", b"seven..", b"exactly eight!!!", bytes(range(48))]
        assert all(writer.try_push(record) for record in records)
        assert [reader.try_pop() for _ in records] == records
        assert reader.try_pop() is None


def test_a_full_ring_refuses_until_something_is_consumed():
    with open_ring(256) as (writer, [reader], _):
        assert fill(writer, b"x" * 16) == 8
        assert reader.try_pop() == b"x" * 16
        assert writer.try_push(b"y")
        assert not writer.try_push(b"z")


def test_a_record_is_never_split_at_the_end_of_the_buffer():
    with open_ring(256) as (writer, [reader], raw):
        for _ in range(5):
            assert writer.try_push(b"a" * 32)
            assert reader.try_pop() == b"a" * 32
        assert writer.try_push(b"b" * 40)
        assert raw[DATA + 16 : DATA + 16 + 40] == b"b" * 40
        assert reader.try_pop() == b"b" * 40
        assert reader.position == 256 + 64


def test_the_largest_record_takes_a_quarter_of_the_ring():
    with open_ring(1024) as (writer, [reader], _):
        assert writer.max_record == 240
        assert writer.try_push(b"m" * 240)
        assert reader.published() == 256
        with pytest.raises(ValueError, match=r"record of 241 bytes; ring a\.0>b\.0 takes at most 240"):
            writer.try_push(b"m" * 241)


def test_every_reader_gets_every_record_and_the_slowest_holds_the_writer():
    with open_ring(256, readers=3) as (writer, readers, _):
        count = fill(writer, b"r")
        for reader in readers[:2]:
            assert [reader.try_pop() for _ in range(count)] == [b"r"] * count
            assert not writer.try_push(b"s")
        assert readers[2].try_pop() == b"r"
        assert writer.try_push(b"s")
        assert [reader.try_pop() for reader in readers] == [b"s", b"s", b"r"]


def test_the_ends_keep_their_place_when_they_are_attached_late():
    fd = ring.create("late", 256)
    writer = RingWriter(fd)
    writer.try_push(b"one")
    writer.try_push(b"two")
    assert RingReader(fd).try_pop() == b"one"
    assert RingReader(fd).try_pop() == b"two"
    RingWriter(fd).try_push(b"three")
    assert RingReader(fd).try_pop() == b"three"
    os.close(fd)


@given(
    capacity=st.sampled_from([128, 256, 1024]),
    readers=st.integers(1, 3),
    steps=st.lists(st.tuples(st.integers(0, 5), st.floats(0, 1)), max_size=300),
)
def test_it_behaves_like_a_bounded_queue(capacity, readers, steps):
    with open_ring(capacity, readers) as (writer, ends, _):
        oracle = [deque() for _ in ends]
        for count, (action, fraction) in enumerate(steps):
            if action < len(ends):
                expected = oracle[action].popleft() if oracle[action] else None
                assert ends[action].try_pop() == expected
                continue
            payload = bytes([count % 256]) * round(fraction * writer.max_record)
            used = max(end.published() - end.position for end in ends)
            if writer.try_push(payload):
                for queue in oracle:
                    queue.append(payload)
                assert max(end.published() - end.position for end in ends) <= capacity
            else:
                assert used > capacity // 2
        for end, queue in zip(ends, oracle, strict=True):
            assert [end.try_pop() for _ in range(len(queue) + 1)] == [*queue, None]


def test_any_flipped_bit_of_a_record_is_noticed():
    with open_ring() as (writer, [reader], raw):
        writer.try_push(b"hello")
        for bit in range((16 + 5) * 8):
            raw[DATA + bit // 8] ^= 1 << bit % 8
            with pytest.raises(RingCorrupt, match=r"ring a\.0>b\.0 at position 0: "):
                reader.try_pop()
            raw[DATA + bit // 8] ^= 1 << bit % 8
        assert reader.try_pop() == b"hello"


def test_any_flipped_bit_of_a_padding_record_is_noticed():
    with open_ring(256) as (writer, [reader], raw):
        for _ in range(5):
            writer.try_push(b"a" * 32)
            reader.try_pop()
        writer.try_push(b"b" * 40)
        for bit in range(16 * 8):
            raw[DATA + 240 + bit // 8] ^= 1 << bit % 8
            with pytest.raises(RingCorrupt, match="at position 240: "):
                reader.try_pop()
            raw[DATA + 240 + bit // 8] ^= 1 << bit % 8
        assert reader.try_pop() == b"b" * 40


def test_a_padding_record_without_one_behind_it_is_noticed():
    with open_ring(256) as (writer, [reader], raw):
        for _ in range(5):
            writer.try_push(b"a" * 32)
            reader.try_pop()
        writer.try_push(b"b" * 40)
        store(raw, TAIL, 256)
        for _ in range(2):
            with pytest.raises(RingCorrupt, match="at position 240: a record of 4294967295 bytes"):
                reader.try_pop()


def test_a_record_of_an_earlier_lap_is_not_taken_for_a_new_one():
    with open_ring(256) as (writer, [reader], raw):
        for _ in range(8):
            writer.try_push(b"old record here!")
            reader.try_pop()
        store(raw, TAIL, 256 + 32)
        with pytest.raises(RingCorrupt, match="at position 256: the record belongs to another position"):
            reader.try_pop()


def test_a_record_that_ends_behind_the_tail_is_noticed_although_its_checksum_is_right():
    with open_ring(256) as (writer, [reader], raw):
        writer.try_push(b"sixteen bytes ok")
        store(raw, DATA + 8, xxh3_64_intdigest(raw[DATA + 16 : DATA + 33]) >> 32 << 32 | 17)
        with pytest.raises(RingCorrupt, match="a record of 17 bytes does not end before 32"):
            reader.try_pop()


@pytest.mark.parametrize("tail", [24, 256 + 16, 2**64 - 16], ids=["odd", "too far", "behind"])
def test_a_writer_that_cannot_be_where_it_claims_is_noticed(tail):
    with open_ring(256) as (_, [reader], raw):
        store(raw, TAIL, tail)
        with pytest.raises(RingCorrupt, match=f"the writer claims to be at {tail}"):
            reader.try_pop()


def test_a_reader_that_is_ahead_of_the_writer_is_noticed():
    with open_ring(256) as (writer, _, raw):
        fill(writer, b"")
        store(raw, HEAD, 512)
        with pytest.raises(RingCorrupt, match="reader 0 is at 512, the writer at 256"):
            writer.try_push(b"")


@pytest.mark.parametrize(
    ("at", "value", "complaint"),
    [
        (0, 1, "not a ring of this version"),
        (7, 1, "not a ring of this version"),
        (8, 512, "ring r: capacity 512 in a file of 4352 bytes"),
        (16, 0, "ring r: 0 readers"),
        (16, 99, "ring r: 99 readers"),
    ],
    ids=["magic", "version", "capacity", "no readers", "too many readers"],
)
@pytest.mark.parametrize("end", [RingWriter, RingReader])
def test_the_files_header_is_checked_on_attach(end, at, value, complaint):
    fd = ring.create("r", 256)
    raw = memory.attach(fd)
    raw[at : at + 2] = value.to_bytes(2, "little") if at != 7 else bytes([value, raw[8]])
    with pytest.raises(RingCorrupt, match=complaint):
        end(fd)
    os.close(fd)


def test_a_capacity_that_is_no_power_of_two_is_refused_on_attach():
    real, odd = ring.create("r", 256), memory.create("odd", 4096 + 384)
    raw = memory.attach(odd)
    raw[:4096] = memory.attach(real)[:4096]
    store(raw, 8, 384)
    with pytest.raises(RingCorrupt, match="capacity 384"):
        RingReader(odd)
    os.close(real)
    os.close(odd)


@pytest.mark.parametrize(
    ("name", "capacity", "readers"),
    [("r", 64, 1), ("r", 384, 1), ("r", 256, 0), ("r", 256, ring.MAX_READERS + 1), ("x" * 97, 256, 1)],
)
def test_an_impossible_ring_is_refused(name, capacity, readers):
    with pytest.raises(ValueError, match="ring"):
        ring.create(name, capacity, readers)


def test_a_reader_that_the_ring_does_not_have_is_refused():
    fd = ring.create("r", 256, readers=2)
    with pytest.raises(ValueError, match="ring r has 2 readers: there is no reader 2"):
        RingReader(fd, 2)
    os.close(fd)


def test_as_many_readers_as_a_header_page_holds():
    with open_ring(256, readers=ring.MAX_READERS) as (writer, readers, _):
        assert writer.try_push(b"all")
        assert [reader.try_pop() for reader in readers] == [b"all"] * ring.MAX_READERS


def test_a_barrier_stands_between_record_and_counter_where_the_machine_needs_one():
    with open_ring() as (writer, [reader], raw):
        seen = []
        writer._fence = reader._fence = lambda: seen.append(
            (load(raw, TAIL), load(raw, HEAD), raw[DATA + 16])
        )
        assert writer.try_push(b"x")
        assert seen.pop() == (0, 0, ord("x")), "publish: the record is stored, the tail not yet"
        assert reader.published() == 32
        assert seen.pop() == (32, 0, ord("x")), "publish: the tail is loaded, no record yet"
        assert reader.try_pop() == b"x"
        assert seen.pop() == (32, 0, ord("x")), "consume: the record is copied out, the head not stored yet"
        assert fill(writer, b"y" * 16) == 8
        assert seen.pop() == (256 + 32, 32, ord("y")), "consume: the head is loaded, nothing overwritten yet"
        assert len(seen) == 8 + 1
