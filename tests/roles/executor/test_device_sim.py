import threading
from functools import partial

import pytest
import torch
from clock import TICK, Clock

from stretto.roles.executor import device_sim
from stretto.roles.executor.device_sim import SPIN_SECONDS, SimDevice, SimStream, sleep_until


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(device_sim, "time", clock)
    return clock


@pytest.fixture
def device(clock: Clock) -> SimDevice:
    return SimDevice(lambda: None, "simulated", 7)


@pytest.fixture
def stream(device: SimDevice) -> SimStream:
    return device.stream()


def test_steps_queued_in_time_follow_each_other_without_a_gap(device: SimDevice, stream: SimStream) -> None:
    events = [device.event() for _ in range(3)]
    gate = threading.Event()
    stream.submit(gate.wait)
    for event, seconds in zip(events, (0.0, 0.25, 0.125), strict=True):
        stream.submit(partial(stream.spend, seconds))
        stream.record(event)
    gate.set()
    device.close()
    assert [event.time for event in events] == [0.0, 0.25, 0.375]


def test_what_the_host_takes_for_the_work_is_not_in_the_times(
    device: SimDevice, stream: SimStream, clock: Clock
) -> None:
    event = device.event()

    def slow() -> None:
        clock.now += 3.0
        stream.spend(0.5)

    stream.submit(slow)
    stream.record(event)
    device.close()
    assert (event.time, clock.now) == (0.5, 3.0)


def test_an_event_is_done_no_earlier_than_it_says(device: SimDevice, stream: SimStream, clock: Clock) -> None:
    event, seen = device.event(), list[float]()
    gate = threading.Event()
    stream.submit(gate.wait)
    stream.submit(partial(stream.spend, 0.5))
    stream.record(event)
    device.on_done(event, lambda: seen.append(clock.now))
    assert not event.done
    gate.set()
    device.close()
    assert event.time == 0.5 <= seen[0]


def test_a_step_begins_when_it_is_given_to_an_idle_stream(
    device: SimDevice, stream: SimStream, clock: Clock
) -> None:
    first, second = device.event(), device.event()
    stream.record(first)
    first.wait()
    clock.now = 8.0
    stream.record(second)
    device.close()
    assert (first.time, second.time) == (0.0, 8.0)


def test_a_stream_waits_for_the_modelled_time_of_another(device: SimDevice, stream: SimStream) -> None:
    other, done, event = device.stream(), device.event(), device.event()
    other.wait(done)
    other.submit(partial(other.spend, 0.5))
    other.record(event)
    stream.submit(partial(stream.spend, 0.25))
    stream.record(done)
    device.close()
    assert event.time - done.time == 0.5


def test_results_land_with_the_step(device: SimDevice, stream: SimStream) -> None:
    output, landed = device.output(2, torch.int32), device.event()
    stream.submit(partial(output.tensor.fill_, 5))
    output.fetch(stream, landed)
    device.close()
    assert landed.done
    assert output.host.tolist() == [5, 5]


def test_memory_is_the_gpus(device: SimDevice) -> None:
    assert (device.name, device.free_memory(), device.torch_device) == ("simulated", 7, torch.device("cpu"))


def test_sleeping_ends_at_the_moment_with_a_short_spin(clock: Clock) -> None:
    sleep_until(0.5)
    assert clock.sleeps[0] == 0.5 - SPIN_SECONDS
    assert 0.5 <= clock.now < 0.5 + 2 * TICK
    assert set(clock.sleeps[2:]) == {0}


def test_there_is_no_sleep_until_what_is_past(clock: Clock) -> None:
    sleep_until(0.0)
    assert clock.sleeps == []
