import pytest

from stretto.shm import membarrier


@pytest.fixture(autouse=True)
def forgotten():
    membarrier.join.cache_clear()
    yield
    membarrier.join.cache_clear()


def test_the_kernel_knows_both_commands_by_these_numbers():
    query = 0
    supported = membarrier._libc().syscall(membarrier._SYSCALL[membarrier.platform.machine()], query, 0, 0)
    if supported < 0:
        pytest.skip("no membarrier here")
    assert supported & (1 << 1), "MEMBARRIER_CMD_GLOBAL_EXPEDITED"
    assert supported & (1 << 2), "MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED"
    assert membarrier.join()
    membarrier.everywhere()


@pytest.mark.parametrize("forbidden", [1 << 1, 1 << 2], ids=["the barrier", "taking part"])
def test_nobody_joins_where_either_half_is_forbidden(monkeypatch, forbidden):
    monkeypatch.setattr(membarrier, "_call", lambda command: command != forbidden)
    assert not membarrier.join()


def test_a_machine_whose_number_is_not_known_has_no_barrier(monkeypatch):
    monkeypatch.setattr(membarrier.platform, "machine", lambda: "m68k")
    assert not membarrier.join()


def test_a_barrier_that_fails_is_not_passed_over(monkeypatch):
    monkeypatch.setattr(membarrier, "_call", lambda command: False)
    with pytest.raises(RuntimeError, match="membarrier"):
        membarrier.everywhere()
