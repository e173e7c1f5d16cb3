import numpy as np
import pytest
import torch

from stretto.roles.executor.device_cpu import CpuDevice
from stretto.roles.executor.errors import ConfigError
from stretto.roles.executor.kv import PageShape
from stretto.roles.executor.largest_step import largest_plan, pool_bytes, run_largest
from stretto.roles.executor.runner import Runner
from stretto.roles.executor.runner_device import DeviceRunner

SHAPE = PageShape(layers=1, page_size=16, kv_heads=1, head_dim=32, dtype=torch.float32)
GIB = 1 << 30


def test_the_largest_step_is_full_of_prompt_and_of_decodes_at_the_end_of_their_contexts():
    plan = largest_plan(rows=25, slots=5, max_len=10, pages_per_slot=3)
    assert np.frombuffer(plan.chunks, np.int32).tolist() == [0, 10, 1, 1, 10, 1, 2, 5, 1]
    assert np.frombuffer(plan.decodes, np.int32).tolist() == [3, 4]
    assert [admit.length for admit in plan.admits] == [0, 0, 0, 9, 9]
    assert {len(admit.pages) for admit in plan.admits} == {12}


def test_it_is_no_larger_than_the_slots_allow():
    plan = largest_plan(rows=100, slots=2, max_len=10, pages_per_slot=3)
    assert np.frombuffer(plan.chunks, np.int32).tolist() == [0, 10, 1, 1, 10, 1]
    assert not plan.decodes


@pytest.mark.parametrize("kind", [DeviceRunner, Runner])
def test_it_runs_in_a_pool_of_one_page(tiny, kind):
    device, shape = CpuDevice(lambda: None), PageShape(2, 16, 2, 16, torch.float32)
    stream = run_largest(kind, device, tiny, shape, largest_plan(40, 4, 32, 2), slots=4, pages_per_slot=2)
    assert device._streams == [stream]
    device.check()
    device.close()


def test_what_does_not_fit_says_what_to_change(tiny, monkeypatch):
    def full(*args):
        raise torch.OutOfMemoryError

    device, shape = CpuDevice(lambda: None), PageShape(2, 16, 2, 16, torch.float32)
    monkeypatch.setattr(DeviceRunner, "launch", full)
    with pytest.raises(ConfigError, match=r"40 prompt tokens and 4 sequences.*smaller --max-batched-tokens"):
        run_largest(DeviceRunner, device, tiny, shape, largest_plan(40, 4, 32, 2), slots=4, pages_per_slot=2)
    device.close()


@pytest.mark.parametrize(("wanted", "room"), [("0.9", 4), ("1", 5), ("8GiB", 3), ("0.55", 0.5)])
def test_the_pool_is_what_is_left_of_the_share(wanted, room):
    assert pool_bytes(wanted, free=5 * GIB, total=10 * GIB, shape=SHAPE) == int(room * GIB)


def test_the_pool_is_not_more_than_is_free():
    assert pool_bytes("20GiB", free=5 * GIB, total=10 * GIB, shape=SHAPE) == 5 * GIB


@pytest.mark.parametrize("wanted", ["0.5", "4GiB"])
def test_a_share_that_is_taken_already_says_what_to_change(wanted):
    with pytest.raises(ConfigError, match=r"5 GiB are taken .* smaller --max-batched-tokens, --max-seqs"):
        pool_bytes(wanted, free=5 * GIB, total=10 * GIB, shape=SHAPE)


@pytest.mark.parametrize(("wanted", "why"), [("1.5", "no share"), ("0", "no share"), ("much", "not a size")])
def test_nonsense_is_refused(wanted, why):
    with pytest.raises(ConfigError, match=why):
        pool_bytes(wanted, free=GIB, total=GIB, shape=SHAPE)
