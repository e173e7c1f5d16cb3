import numpy as np
import pytest
import torch

from stretto.bench import gpu_steps
from stretto.bench.gpu_kernels import Yardsticks
from stretto.roles.executor.device_cpu import CpuDevice

BEST = Yardsticks(bytes_per_second=1e9, flops_per_second=1e9)


@pytest.fixture
def device():
    device = CpuDevice(lambda: None)
    yield device
    device.close()


def test_a_step_reads_all_weights_but_those_of_the_embedding(device):
    made = gpu_steps.weights("tiny", device.torch_device, torch.float32)
    layer = 64 * (64 + 2 * 32) + 64 * 64 + 3 * 64 * 96
    assert made.bytes == 4 * (2 * layer + 250 * 64)


def test_the_floor_is_weights_and_cache_at_the_bandwidth_of_a_copy(device):
    found = gpu_steps.decode("tiny", device, torch.float32, BEST, 3, graphs=True, overlap=True)
    made = gpu_steps.weights("tiny", device.torch_device, torch.float32)
    mean, token_bytes = 20 + gpu_steps.WARM + 4, 2 * 2 * 2 * 16 * 4
    assert found.floor_microseconds == pytest.approx((made.bytes + 3 * mean * token_bytes) / 1e3)
    assert found.times_the_floor == pytest.approx(found.step_microseconds / found.floor_microseconds)
    assert 0 <= found.idle_fraction < 1


def test_tokens_are_the_same_in_every_mode(device):
    found = []
    for graphs, depth in ((True, 2), (False, 2), (True, 1)):
        steps = gpu_steps.Steps("tiny", device, torch.float32, 3, graphs)
        results = steps.run(steps.decoding(10), depth)
        found.append([np.frombuffer(result.tokens, np.int32).tolist() for result in results])
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 11
    assert min(map(min, found[0])) >= 0


def test_a_prompt_is_one_step(device):
    found = gpu_steps.prefill("tiny", device, torch.float32, BEST)
    assert found.tokens == 32
    assert found.tokens_per_second == pytest.approx(32e3 / found.milliseconds)
