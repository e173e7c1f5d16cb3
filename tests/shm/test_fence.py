import ctypes
import sys
from types import SimpleNamespace

import pytest

from stretto.shm.fence import fence


def test_x86_64_needs_no_barrier():
    assert fence("x86_64") is None


def test_other_machines_get_the_sequentially_consistent_barrier_of_c11(monkeypatch):
    orders = []

    def atomic_thread_fence(order):
        orders.append(order)

    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(atomic_thread_fence=atomic_thread_fence))
    barrier = fence("aarch64")
    barrier()
    barrier()
    assert orders == [5, 5]


def test_a_machine_whose_barrier_is_missing_is_refused(monkeypatch):
    def missing(name):
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(RuntimeError, match="riscv64 need a memory barrier: install libatomic"):
        fence("riscv64")


def test_a_32_bit_python_is_refused(monkeypatch):
    monkeypatch.setattr(sys, "maxsize", 2**31 - 1)
    with pytest.raises(RuntimeError, match="64-bit"):
        fence("x86_64")
