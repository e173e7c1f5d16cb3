from __future__ import annotations

import time

import pytest

from stretto.roles.executor.cuda_events import CudaClock, CudaEvent, Watcher
from stretto.tests.roles.executor.logged_cuda import Cuda


@pytest.fixture
def cuda() -> Cuda:
    return Cuda()


@pytest.fixture
def clock(cuda: Cuda) -> CudaClock:
    return CudaClock(cuda)


@pytest.fixture
def event(cuda: Cuda, clock: CudaClock) -> CudaEvent:
    return CudaEvent(cuda, clock)


def test_an_event_is_not_done_before_it_is_recorded(event: CudaEvent, cuda: Cuda) -> None:
    assert not event.done
    event.record(cuda.default)
    assert event.done


def test_event_times_are_host_times(event: CudaEvent, cuda: Cuda) -> None:
    before = time.monotonic()
    event.record(cuda.default)
    assert event.time == pytest.approx((before + time.monotonic()) / 2, abs=time.monotonic() - before + 1e-3)


def test_events_have_timing_and_let_the_watcher_sleep(event: CudaEvent) -> None:
    assert event.raw.options == {"enable_timing": True, "blocking": True}


def test_the_clock_is_anchored_anew_when_the_anchor_is_old(
    clock: CudaClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = clock._anchor
    clock.refresh()
    assert clock._anchor is first
    monkeypatch.setattr("stretto.roles.executor.cuda_events.ANCHOR_SECONDS", -1.0)
    clock.refresh()
    assert clock._anchor is not first


def test_a_watcher_calls_back_in_order_and_ends_when_all_has_passed(event: CudaEvent, cuda: Cuda) -> None:
    told: list[str] = []
    watcher = Watcher(lambda: told.append("passed"), lambda error: told.append("failed"))
    event.record(cuda.default)
    watcher.watch(event, lambda: told.append("one"))
    watcher.watch(event, lambda: told.append("two"))
    watcher.close()
    assert told == ["passed", "one", "passed", "two"]


def test_a_watcher_tells_what_the_gpu_reports_and_calls_nobody_back(event: CudaEvent, cuda: Cuda) -> None:
    told: list[Exception] = []
    watcher = Watcher(lambda: None, told.append)
    cuda.broken = True
    watcher.watch(event, lambda: told.append(LookupError("called back")))
    watcher.watch(event, lambda: told.append(LookupError("called back")))
    watcher.close()
    assert [str(error) for error in told] == ["CUDA error: an illegal memory access was encountered"]
