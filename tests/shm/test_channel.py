import asyncio
import hashlib
import itertools
import os
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stretto.shm import bell, channel, memory, ring
from stretto.shm.channel import Receiver, Sender

RECORDS = 100_000
PAGE = 4096
TAIL, HEAD, VIGIL = slice(128, 136), slice(256, 264), slice(3968, 3976)


def open_channel(capacity=256):
    """Both ends in this process, each with descriptors of its own, as after a handover."""
    fds = ring.create("a.0>b.0", capacity), bell.create(), bell.create()
    return Sender(*map(os.dup, fds)), Receiver(*fds)


@pytest.fixture
def ends():
    ends = open_channel()
    yield ends
    for end in ends:
        end.close()


def digest_of(records):
    digest = hashlib.sha256()
    for record in records:
        digest.update(len(record).to_bytes(4, "little") + record)
    return digest.hexdigest()


def open_descriptors():
    return sorted(os.listdir("/proc/self/fd"))


def test_what_is_sent_is_received_in_order_and_the_bell_rings(ends):
    sender, receiver = ends
    assert not bell.hear(receiver.bell_fd)
    sender.send(b"one")
    sender.send(b"two")
    assert bell.wait(receiver.bell_fd, 0)
    receiver.hear()
    assert not bell.wait(receiver.bell_fd, 0)
    assert list(receiver.drain()) == [b"one", b"two"]
    assert list(receiver.drain()) == []


def test_spinning_ends_with_the_first_record_or_the_time(ends):
    sender, receiver = ends
    assert not channel.spin([receiver], 1e-4)
    sender.send(b"one")
    assert channel.spin([receiver], 3600)
    assert list(receiver.drain()) == [b"one"]
    assert not channel.spin([receiver], 1e-4)


def test_a_sender_spares_the_bell_of_who_spins_until_it_rests(ends):
    sender, receiver = ends
    assert not channel.spin([receiver], 0)
    sender.send(b"seen")
    assert not bell.hear(receiver.bell_fd)
    assert channel.spin([receiver], 3600)
    assert receiver.receive() == b"seen"
    assert not channel.rest([receiver])
    sender.send(b"heard")
    assert bell.hear(receiver.bell_fd)
    assert receiver.receive() == b"heard"


def test_a_backlog_of_a_sender_spares_the_bell_too(ends):
    sender, receiver = ends
    for _ in range(6):
        sender.send(b"x" * 48)
    receiver.hear()
    assert channel.spin([receiver], 3600)
    assert len(list(receiver.drain())) == 4
    sender.hear()
    assert not bell.hear(receiver.bell_fd)
    assert len(list(receiver.drain())) == 2


def test_who_rests_looks_once_more_after_the_barrier(ends, monkeypatch):
    sender, receiver = ends
    channel.spin([receiver], 0)
    saw = []

    def everywhere():
        saw.append(sender._ring.watched())
        sender._ring.try_push(b"by a sender that saw the vigil: no bell")

    monkeypatch.setattr(channel.membarrier, "everywhere", everywhere)
    assert channel.rest([receiver])
    assert saw == [False], "the vigil is over before the barrier"


@pytest.mark.parametrize("without", ["sender", "receiver"])
def test_the_bell_rings_all_the_same_where_one_side_has_no_barrier(monkeypatch, without):
    monkeypatch.setattr(channel.membarrier, "join", lambda: without != "sender")
    sender, receiver = open_channel()
    monkeypatch.setattr(channel.membarrier, "join", lambda: without != "receiver")
    assert not channel.spin([receiver], 0)
    sender.send(b"x")
    assert bell.hear(receiver.bell_fd)
    assert channel.rest([receiver])
    sender.close()
    receiver.close()


def test_a_vigil_is_not_inherited_by_the_ring_that_replaces_a_dead_ones(ends):
    sender, receiver = ends
    channel.spin([receiver], 0)
    fresh_sender, fresh_receiver = open_channel()
    sender.replace(fresh_sender)
    receiver.replace(fresh_receiver)
    sender.send(b"x")
    assert bell.hear(receiver.bell_fd)


def test_a_full_ring_keeps_the_rest_with_the_sender_in_order(ends):
    sender, receiver = ends
    records = [bytes([i]) * 48 for i in range(10)]
    for record in records:
        sender.send(record)
    assert (sender.blocked, sender.pending) == (True, 6)
    assert list(receiver.drain()) == records[:4]
    assert bell.wait(sender.bell_fd, 0)
    sender.hear()
    assert (sender.blocked, sender.pending) == (True, 2)
    assert list(receiver.drain()) == records[4:8]
    sender.hear()
    assert (sender.blocked, sender.pending) == (False, 0)
    assert list(receiver.drain()) == records[8:]


def test_a_small_record_does_not_overtake_a_waiting_large_one(ends):
    sender, receiver = ends
    records = [*[b"large" * 9] * 5, b"s"]
    for record in records:
        sender.send(record)
    received = list(receiver.drain())
    sender.hear()
    assert received + list(receiver.drain()) == records


def test_an_oversized_record_is_refused_even_while_others_wait(ends):
    sender, _ = ends
    for blocked in (False, True):
        assert sender.blocked is blocked
        with pytest.raises(ValueError, match="at most 48"):
            sender.send(b"x" * 49)
        for _ in range(5):
            sender.send(b"x" * 48)


def test_drain_stops_at_what_was_published_before_it_and_the_bell_tells_of_the_rest(ends):
    sender, receiver = ends
    sender.send(b"before")
    receiver.hear()
    received = []
    for payload in receiver.drain():
        received.append(payload)
        sender.send(b"during")
    assert received == [b"before"]
    assert bell.wait(receiver.bell_fd, 0)
    assert list(receiver.drain()) == [b"during"]


def test_the_space_bell_rings_once_a_quarter(ends):
    sender, receiver = ends
    rung = []
    for _ in range(16):
        sender.send(b"sixteen bytes ok")
        list(receiver.drain())
        rung.append(bell.hear(sender.bell_fd))
    assert rung == [False, True] * 8


def test_replace_moves_both_ends_to_the_fresh_ring_and_leaks_nothing():
    before = open_descriptors()
    sender, receiver = open_channel()
    during = open_descriptors()
    for _ in range(9):
        sender.send(b"lost" * 12)
    fresh_sender, fresh_receiver = open_channel(1024)
    bells = fresh_sender.bell_fd, fresh_receiver.bell_fd
    sender.replace(fresh_sender)
    receiver.replace(fresh_receiver)
    assert (sender.bell_fd, receiver.bell_fd) == bells
    assert len(open_descriptors()) == len(during)
    assert (sender.blocked, list(receiver.drain())) == (False, [])
    sender.send(b"found" * 40)
    assert list(receiver.drain()) == [b"found" * 40]
    sender.close()
    receiver.close()
    assert open_descriptors() == before


def test_after_replace_the_space_bell_follows_the_fresh_ring(ends):
    sender, receiver = ends
    for _ in range(20):
        sender.send(b"old" * 16)
        list(receiver.drain())
    fresh_sender, fresh_receiver = open_channel()
    sender.replace(fresh_sender)
    receiver.replace(fresh_receiver)
    for _ in range(5):
        sender.send(b"new" * 16)
    assert list(receiver.drain()) == [b"new" * 16] * 4
    assert bell.wait(sender.bell_fd, 0)


def test_replace_keeps_what_already_waits_for_the_fresh_ring(ends):
    sender, receiver = ends
    fresh_sender, fresh_receiver = open_channel()
    for _ in range(5):
        fresh_sender.send(b"new" * 16)
    sender.replace(fresh_sender)
    receiver.replace(fresh_receiver)
    assert sender.pending == 1


def test_a_ring_replaced_in_the_middle_of_a_drain_ends_it(ends):
    sender, receiver = ends
    sender.send(b"old")
    sender.send(b"lost")
    fresh_sender, fresh_receiver = open_channel()
    received = []
    for payload in receiver.drain():
        received.append(payload)
        sender.replace(fresh_sender)
        receiver.replace(fresh_receiver)
        sender.send(b"new")
    assert received == [b"old"]
    assert list(receiver.drain()) == [b"new"]


def test_an_event_loop_moves_more_than_the_ring_holds(ends):
    sender, receiver = ends
    records = [bytes([i % 256]) * (i % 49) for i in range(2000)]
    received = []

    async def move():
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def on_items():
            receiver.hear()
            received.extend(receiver.drain())
            if len(received) == len(records):
                done.set()

        loop.add_reader(sender.bell_fd, sender.hear)
        loop.add_reader(receiver.bell_fd, on_items)
        for record in records:
            sender.send(record)
        await done.wait()
        loop.remove_reader(sender.bell_fd)
        loop.remove_reader(receiver.bell_fd)

    asyncio.run(move())
    assert received == records


# No wake-up is lost: the argument in the module's docstring, then the code under it.


def test_after_a_push_failed_the_reader_still_passes_a_quarter_at_which_the_record_fits():
    capacity, quarter = 16, 4
    failures = 0
    for tail in range(capacity, 2 * capacity):
        for head, size in itertools.product(range(tail - capacity, tail + 1), range(1, quarter + 1)):
            left = capacity - tail % capacity
            end = tail + size if size <= left else tail + left + size
            if end - head > capacity:
                failures += 1
                boundary = tail // quarter * quarter
                assert head < boundary <= tail
                assert end - boundary <= capacity
    assert failures == 170


class Stale:
    """A channel whose ends see each other's stores as late as the machine allows.

    Each end works on memory of its own. What one stored reaches the other when it rings a bell (a system
    call, which orders it), at a barrier or, as it may on any machine, earlier.
    """

    def __init__(self, capacity, patch):
        fds = [ring.create(name, capacity) for name in ("written", "read")]
        self._written, self._read = map(memory.attach, fds)
        self._items, space = bell.create(), bell.create()
        patch.setattr(channel, "bell", SimpleNamespace(ring=self._ring, hear=bell.hear))
        barrier = SimpleNamespace(join=lambda: True, everywhere=self._pass_barrier)
        patch.setattr(channel, "membarrier", barrier)
        self.sender = Sender(fds[0], *map(os.dup, (self._items, space)))
        self._space = self.sender.bell_fd
        self.receiver = Receiver(fds[1], self._items, space)
        self.received = []
        self._draining, self._spins = iter(()), False
        self._items = self.sender._items

    def show_writes(self):
        self._read[PAGE:] = self._written[PAGE:]
        self._read[TAIL] = self._written[TAIL]

    def show_reads(self):
        self._written[HEAD] = self._read[HEAD]
        self._written[VIGIL] = self._read[VIGIL]

    def _pass_barrier(self):
        self.show_writes()
        self.show_reads()

    def _ring(self, fd):
        (self.show_writes if fd == self._items else self.show_reads)()
        bell.ring(fd)

    def wake_sender(self):
        """One turn of a sender that sleeps on its bell; False if it sleeps on."""
        audible = bell.wait(self.sender.bell_fd, 0)
        if audible:
            self.sender.hear()
        return audible

    def wake_receiver(self):
        """One record for a receiver that drains, and sleeps on its bell in between; False if it sleeps on."""
        for payload in self._draining:
            self.received.append(payload)
            return True
        if self._spins and self.rest():
            return True
        audible = bell.wait(self.receiver.bell_fd, 0)
        if audible:
            self.receiver.hear()
            self._draining = self.receiver.drain()
        return audible

    def spin(self):
        """One look of a receiver that does not sleep."""
        self._spins = True
        if channel.spin([self.receiver], 0):
            self._draining = self.receiver.drain()

    def rest(self):
        """A receiver stops spinning, to sleep unless there is something."""
        self._spins = False
        if awake := channel.rest([self.receiver]):
            self._draining = self.receiver.drain()
        return awake

    def run_until_asleep(self):
        while self.wake_receiver() or self.wake_sender():
            pass

    def close(self):
        self.sender.close()
        self.receiver.close()
        self._written.close()
        self._read.close()


def test_every_short_sequence_of_sizes_gets_through_with_stale_views():
    sequences = list(itertools.product((b"", b"sixteen bytes ok"), repeat=12))
    with pytest.MonkeyPatch.context() as patch:
        channel_under_test = Stale(128, patch)
        for records in sequences:
            for record in records:
                channel_under_test.sender.send(record)
            channel_under_test.run_until_asleep()
            assert channel_under_test.received == list(records)
            channel_under_test.received.clear()
        channel_under_test.close()


@given(
    capacity=st.sampled_from([128, 256, 512]),
    steps=st.lists(st.tuples(st.integers(0, 9), st.floats(0, 1)), max_size=200),
)
def test_whatever_the_order_of_events_all_records_get_through_once_both_ends_only_sleep(capacity, steps):
    with pytest.MonkeyPatch.context() as patch:
        stale = Stale(capacity, patch)
        shown = [stale.show_writes, stale.show_reads]
        actions = [stale.wake_sender, stale.wake_receiver, *shown, stale.spin]
        sent = []
        for count, (action, fraction) in enumerate(steps):
            if action < len(actions):
                actions[action]()
            else:
                sent.append(bytes([count]) * round(fraction * (capacity // 4 - 16)))
                stale.sender.send(sent[-1])
        stale.run_until_asleep()
        assert stale.received == sent
        stale.close()


@pytest.mark.parametrize("spinning", [False, True])
def test_two_processes_agree_on_every_byte_while_the_ring_is_full_and_empty_all_the_time(spinning):
    fds = ring.create("parent>child", 1024), bell.create(), bell.create()
    child = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("peer.py"), *map(str, (*fds, RECORDS, int(spinning)))],
        pass_fds=fds,
        stdout=subprocess.PIPE,
        text=True,
    )
    numbers, sender, times_full = random.Random(7), Sender(*fds), 0
    records = [numbers.randbytes(numbers.randrange(numbers.choice((8, 64, 241)))) for _ in range(RECORDS)]
    try:
        for burst in range(0, RECORDS, 50):
            for record in records[burst : burst + 50]:
                sender.send(record)
            while sender.blocked:
                times_full += 1
                while not bell.wait(sender.bell_fd, 1):
                    assert child.poll() is None
                sender.hear()
        digest, times_empty = child.communicate()[0].split()
        assert digest == digest_of(records)
        assert times_full > 100
        assert int(times_empty) > 100
    finally:
        child.kill()
        child.wait()
        sender.close()
