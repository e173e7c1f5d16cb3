import os

import pytest

from stretto.shm import memory


def test_two_mappings_of_one_descriptor_share_their_bytes():
    fd = memory.create("test", 8192)
    one, two = memory.attach(fd), memory.attach(fd)
    os.close(fd)
    one[8000:8005] = b"hello"
    assert two[8000:8005] == b"hello"
    assert len(two) == 8192


@pytest.mark.parametrize("size", [4096, 16384])
def test_the_size_is_final(size):
    fd = memory.create("test", 8192)
    with pytest.raises(PermissionError):
        os.ftruncate(fd, size)
    os.close(fd)


def test_the_descriptor_does_not_leak_into_children():
    fd = memory.create("test", 4096)
    assert not os.get_inheritable(fd)
    os.close(fd)


def test_memory_without_seals_is_refused():
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 4096)
    with pytest.raises(ValueError, match="not sealed"):
        memory.attach(fd)
    os.close(fd)


def test_a_descriptor_of_something_else_is_refused():
    read, write = os.pipe()
    with pytest.raises(ValueError, match="not shared memory"):
        memory.attach(read)
    os.close(read)
    os.close(write)
