import os
import sys
import threading
import time

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


def test_ringing_on_the_way_wakes_a_sleeper_too(fd):
    bell.ring_and_go_on(fd)
    assert bell.wait(fd)
    assert bell.hear(fd)


def test_ringing_what_is_no_bell_is_an_error():
    with pytest.raises(OSError, match="Bad file descriptor"):
        bell.ring_and_go_on(-1)


def test_a_thread_that_rings_on_the_way_goes_on_before_the_one_that_it_wakes(fd):
    came, over, interval = [], [], sys.getswitchinterval()

    def sleeper():
        while not over:
            bell.wait(fd)
            bell.hear(fd)
            came.append("the sleeper")

    thread = threading.Thread(target=sleeper)
    thread.start()
    sys.setswitchinterval(3600)  # the interpreter is given away by system calls alone
    try:
        for _ in range(30):
            time.sleep(5e-4)  # for it to fall asleep; if it has not, this round shows nothing
            came.clear()
            bell.ring_and_go_on(fd)
            assert came == []
    finally:
        sys.setswitchinterval(interval)
        over.append(True)
        bell.ring(fd)
        thread.join()
