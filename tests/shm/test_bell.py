import os
import threading

import pytest

from stretto.shm import bell


@pytest.fixture
def fd():
    fd = bell.create()
    yield fd
    os.close(fd)


def test_a_fresh_bell_is_silent(fd):
    assert not bell.hear(fd)
    assert not bell.wait(fd, 0)


def test_many_rings_are_heard_once(fd):
    for _ in range(3):
        bell.ring(fd)
    assert bell.hear(fd)
    assert not bell.hear(fd)


def test_waiting_does_not_silence(fd):
    bell.ring(fd)
    assert bell.wait(fd)
    assert bell.hear(fd)


def test_a_ring_ends_a_wait_that_began_before_it(fd):
    woken = threading.Thread(target=bell.wait, args=(fd,))
    woken.start()
    bell.ring(fd)
    woken.join()
    assert bell.hear(fd)


def test_the_descriptor_does_not_leak_into_children(fd):
    assert not os.get_inheritable(fd)
