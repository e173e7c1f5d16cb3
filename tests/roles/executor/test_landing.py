"""Where results reach the host."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from stretto.roles.executor.device_cpu import CpuDevice
from stretto.roles.executor.landing import Landing


@pytest.fixture
def device() -> Iterator[CpuDevice]:
    device = CpuDevice(lambda: None)
    yield device
    device.close()


def test_details_get_room_when_they_need_it_and_keep_it(device: CpuDevice) -> None:
    landing = Landing(device, 4)
    assert (landing.tokens.tensor.numel(), landing.details.tensor.numel()) == (4, 0)
    landing.reserve(10)
    details = landing.details
    assert details.tensor.numel() >= 10
    landing.reserve(3)
    assert landing.details is details


@pytest.mark.parametrize("detailed", [False, True])
def test_landed_means_that_all_of_it_is_there(device: CpuDevice, detailed: bool) -> None:
    landing, stream, landed, done = Landing(device, 2), device.stream(), device.event(), threading.Event()
    landing.reserve(3)
    stream.submit(lambda: landing.tokens.tensor.fill_(7))
    stream.submit(lambda: landing.details.tensor.fill_(8))
    landing.fetch(stream, landed, detailed)
    device.on_done(landed, done.set)
    done.wait()
    assert landing.tokens.host.tolist() == [7, 7]
    assert set(landing.details.host.tolist()) == {8}
