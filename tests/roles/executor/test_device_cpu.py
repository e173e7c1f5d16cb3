import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from stretto.roles.executor import device_cpu
from stretto.roles.executor.device_cpu import CpuDevice


@pytest.fixture
def alarm() -> threading.Event:
    return threading.Event()


@pytest.fixture
def device(alarm: threading.Event) -> Iterator[CpuDevice]:
    device = CpuDevice(alarm.set)
    yield device
    device.close()


def append_after(gate: threading.Event, seen: list[int], value: int) -> Callable[[], None]:
    def work() -> None:
        gate.wait()
        seen.append(value)

    return work


def test_work_is_done_in_order_and_giving_it_does_not_wait(device: CpuDevice) -> None:
    stream, gate, seen = device.stream(), threading.Event(), list[int]()
    end = device.event()
    stream.submit(append_after(gate, seen, 1))
    stream.submit(lambda: seen.append(2))
    stream.record(end)
    assert not end.done
    assert seen == []
    gate.set()
    end.wait()
    assert seen == [1, 2]


def test_work_runs_in_inference_mode(device: CpuDevice) -> None:
    stream, end, modes = device.stream(), device.event(), list[bool]()
    stream.submit(lambda: modes.append(torch.is_inference_mode_enabled()))
    stream.record(end)
    end.wait()
    assert modes == [True]


def test_a_stream_waits_for_another_ones_event(device: CpuDevice) -> None:
    first, second, gate, seen = device.stream(), device.stream(), threading.Event(), list[int]()
    written, end = device.event(), device.event()
    first.submit(append_after(gate, seen, 1))
    first.record(written)
    second.wait(written)
    second.submit(lambda: seen.append(2))
    second.record(end)
    gate.set()
    end.wait()
    assert seen == [1, 2]


def test_an_event_knows_when_the_stream_passed_it(device: CpuDevice) -> None:
    stream, started, ended = device.stream(), device.event(), device.event()
    before = time.monotonic()
    stream.record(started)
    stream.record(ended)
    ended.wait()
    assert before <= started.time <= ended.time <= time.monotonic()


def test_an_event_that_is_not_done_has_no_time(device: CpuDevice) -> None:
    with pytest.raises(RuntimeError, match="before it is done"):
        _ = device.event().time


def test_callbacks_come_whether_asked_for_before_or_after(device: CpuDevice) -> None:
    stream, event = device.stream(), device.event()
    before, after = threading.Event(), threading.Event()
    device.on_done(event, before.set)
    assert not before.is_set()
    stream.record(event)
    assert before.wait(60)
    device.on_done(event, after.set)
    assert after.is_set()


def test_failed_work_raises_the_alarm_and_stops_the_stream(device: CpuDevice, alarm: threading.Event) -> None:
    stream, after = device.stream(), list[int]()

    def fail() -> None:
        raise ArithmeticError("seven")

    device.check()
    stream.submit(fail)
    stream.submit(lambda: after.append(1))
    assert alarm.wait(60)
    device.close()
    assert after == []
    with pytest.raises(ArithmeticError, match="seven") as caught:
        device.check()
    assert "fail" in [entry.name for entry in caught.traceback]


def test_uploads_are_the_hosts_own_memory(device: CpuDevice) -> None:
    array = np.array([1, 2], np.int64)
    (tensor,) = device.upload(device.stream(), [array])
    assert tensor.data_ptr() == array.ctypes.data


def test_an_output_is_readable_once_fetched(device: CpuDevice) -> None:
    stream, output, landed = device.stream(), device.output(3, torch.int32), device.event()
    stream.submit(partial(output.tensor.copy_, torch.tensor([4, 5, 6])))
    output.fetch(stream, landed)
    landed.wait()
    assert output.host.tolist() == [4, 5, 6]


def test_closing_finishes_the_work_and_ends_the_threads(alarm: threading.Event) -> None:
    device, seen = CpuDevice(alarm.set), list[int]()
    before = set(threading.enumerate())
    stream = device.stream()
    stream.submit(lambda: seen.append(1))
    device.close()
    assert seen == [1]
    assert set(threading.enumerate()) == before


def test_free_memory_is_what_the_system_and_the_container_leave(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    5 kB\n")
    assert device_cpu._meminfo(tmp_path / "meminfo", "MemAvailable") == 5 * 1024
    assert device_cpu._cgroup_room(tmp_path) == float("inf")
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("900\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 50\n")
    assert device_cpu._cgroup_room(tmp_path) == 150
    (tmp_path / "memory.max").write_text("max\n")
    assert device_cpu._cgroup_room(tmp_path) == float("inf")


def test_free_memory_is_positive_here(device: CpuDevice) -> None:
    assert device.free_memory() > 0
