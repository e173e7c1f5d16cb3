"""The CUDA device on a machine without one: `torch.cuda` is played by a log.

Work is done at once, by the CPU, so values come out right in any case. What the log shows is the order that a
GPU would be held to: which stream waits for which event before it touches a buffer.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from stretto.roles import messages as m
from stretto.roles.executor.device_cuda import CudaDevice
from stretto.roles.executor.landing import Landing
from stretto.roles.executor.runner_device import DeviceRunner
from stretto.tests.roles.executor.logged_cuda import Cuda


@pytest.fixture
def cuda() -> Cuda:
    return Cuda()


@pytest.fixture
def alarm() -> threading.Event:
    return threading.Event()


@pytest.fixture
def device(cuda: Cuda, alarm: threading.Event) -> Iterator[CudaDevice]:
    device = CudaDevice(alarm.set, cuda=cuda, place=torch.device("cpu"))
    yield device
    device.close()


def test_a_stream_starts_after_what_the_default_stream_has_done(device: CudaDevice, cuda: Cuda) -> None:
    device.stream()
    assert cuda.log[-1] == ("wait", "compute", cuda.default)


def test_work_is_launched_at_once_under_its_stream_in_inference_mode(device: CudaDevice, cuda: Cuda) -> None:
    seen: list[Any] = []
    device.stream().submit(lambda: seen.append((cuda.current.name, torch.is_inference_mode_enabled())))
    assert seen == [("compute", True)]
    assert cuda.current is cuda.default


def test_an_upload_crosses_on_the_copy_stream_and_compute_waits_for_it(
    device: CudaDevice, cuda: Cuda
) -> None:
    stream, mark = device.stream(), len(cuda.log)
    arrays = [np.array([1, 2, 3], np.int32), np.array([[0.5]], np.float32)]
    tensors = device.upload(stream, arrays)
    assert [tensor.tolist() for tensor in tensors] == [[1, 2, 3], [[0.5]]]
    assert cuda.since(mark) == [
        ("record", "compute"),
        ("wait", "to_device"),
        ("record", "to_device"),
        ("wait", "compute"),
    ]
    assert cuda.log[-1][2] is cuda.log[-2][2]


def test_a_device_buffer_is_rewritten_after_the_work_that_read_it(device: CudaDevice, cuda: Cuda) -> None:
    stream, uploads = device.stream(), []
    for value in range(4):
        mark = len(cuda.log)
        (tensor,) = device.upload(stream, [np.array([value])])
        uploads.append((tensor, cuda.log[mark:]))
    assert uploads[0][0].data_ptr() == uploads[2][0].data_ptr() != uploads[1][0].data_ptr()
    read_by_first = uploads[1][1][0]
    assert read_by_first[:2] == ("record", "compute")
    assert ("wait", "to_device", read_by_first[2]) in uploads[2][1]


def test_the_host_waits_for_old_copies_only(device: CudaDevice, cuda: Cuda) -> None:
    stream = device.stream()
    for value in range(6):
        device.upload(stream, [np.array([value])])
    copies = [event for what, where, event in cuda.log if (what, where) == ("record", "to_device")]
    waits = [event for what, _, event in cuda.log if what == "synchronize" and event.stream.name != "clock"]
    assert waits == copies[:4]


def test_a_larger_upload_gets_a_larger_buffer(device: CudaDevice) -> None:
    stream = device.stream()
    for count in (1, 1000, 3, 5000):
        (tensor,) = device.upload(stream, [np.arange(count)])
        assert tensor.tolist() == list(range(count))


def test_an_output_is_fetched_by_the_other_copy_stream(device: CudaDevice, cuda: Cuda) -> None:
    stream, output, landed = device.stream(), device.output(2, torch.int32), device.event()
    output.tensor.fill_(7)
    mark = len(cuda.log)
    output.fetch(stream, landed)
    assert output.host.tolist() == [7, 7]
    assert cuda.since(mark) == [("record", "compute"), ("wait", "to_host"), ("record", "to_host")]
    assert landed.done


def test_a_stream_that_is_long_at_work_keeps_nothing_of_others_back(
    device: CudaDevice, cuda: Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda.names = iter(("transfers", "compute"))
    transfers, compute = device.stream(), device.stream()
    long, step, end, called = device.event(), device.event(), threading.Event(), threading.Event()
    transfers.record(long)
    compute.record(step)
    monkeypatch.setattr(long.raw, "synchronize", end.wait)
    device.on_done(long, lambda: None)
    device.on_done(step, called.set)
    assert called.wait(60)
    end.set()


def test_an_error_of_the_gpu_raises_the_alarm(device: CudaDevice, cuda: Cuda, alarm: threading.Event) -> None:
    stream, event = device.stream(), device.event()
    stream.record(event)
    device.check()
    cuda.broken = True
    device.on_done(event, lambda: None)
    assert alarm.wait(60)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        device.check()


def test_free_memory_is_the_gpus(device: CudaDevice) -> None:
    assert device.free_memory() == 123


def test_the_runner_gives_the_same_tokens_as_on_the_cpu(make_bench: Any, tiny: Any) -> None:
    prompts = [[3, 1, 4], [1, 5, 9, 2, 6], [5]]
    kind = functools.partial(CudaDevice, cuda=Cuda(), place=torch.device("cpu"))
    tokens = make_bench(tiny, device=kind).generate(prompts, 12, chunk=2)
    assert tokens == make_bench(tiny).generate(prompts, 12, chunk=2)


def test_the_device_runner_gives_the_same_tokens_too(make_bench: Any, tiny: Any) -> None:
    prompts = [[3, 1, 4], [1, 5, 9, 2, 6], [5]]
    kind = functools.partial(CudaDevice, cuda=Cuda(), place=torch.device("cpu"))
    eager = functools.partial(DeviceRunner, graphs=False)
    tokens = make_bench(tiny, device=kind, runner=eager).generate(prompts, 12, chunk=2)
    assert tokens == make_bench(tiny).generate(prompts, 12, chunk=2)


def test_steps_see_the_state_that_was_made_for_them(
    make_bench: Any, tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda, zeros = Cuda(), torch.zeros

    def noted(*shape: Any, **kind: Any) -> torch.Tensor:
        cuda.log.append(("zeros", cuda.current.name, None))
        return zeros(*shape, **kind)

    monkeypatch.setattr(torch, "zeros", noted)
    kind = functools.partial(CudaDevice, cuda=cuda, place=torch.device("cpu"))
    make_bench(tiny, device=kind, runner=DeviceRunner)
    filled = max(at for at, (what, _, _) in enumerate(cuda.log) if what == "zeros")
    assert cuda.log.index(("wait", "compute", cuda.default), filled)


def test_work_is_captured_on_its_stream_into_a_pool_that_all_graphs_share(
    device: CudaDevice, cuda: Cuda
) -> None:
    stream, replays = device.stream(), []

    def capture() -> None:
        replays.append(device.capture(lambda: cuda.log.append(("work", cuda.current.name, None))))

    mark = len(cuda.log)
    stream.submit(capture)
    stream.submit(capture)
    stream.submit(replays[0])
    once = ["capture", "work", "captured"]
    assert [what for what, _, _ in cuda.log[mark:]] == ["pool", *once, *once, "replay"]
    assert {where for _, where, _ in cuda.log[mark:]} == {"compute"}
    options = [options for what, _, options in cuda.log if what == "capture"]
    assert options == [{"pool": "pool", "capture_error_mode": "thread_local"}] * 2
    assert cuda.log[-1][2] is cuda.log[mark + 3][2]


def test_a_capture_ends_where_its_work_fails(device: CudaDevice, cuda: Cuda) -> None:
    def fail() -> None:
        raise ArithmeticError("seven")

    with pytest.raises(ArithmeticError, match="seven"):
        device.stream().submit(lambda: device.capture(fail))
    assert cuda.log[-1][0] == "captured"


def test_details_are_fetched_before_the_tokens_that_announce_them(device: CudaDevice, cuda: Cuda) -> None:
    landing, stream, landed = Landing(device, 2), device.stream(), device.event()
    landing.reserve(5)
    mark = len(cuda.log)
    landing.fetch(stream, landed, detailed=True)
    once = [("record", "compute"), ("wait", "to_host"), ("record", "to_host")]
    assert cuda.since(mark) == once + once
    assert cuda.log[-1][2] is landed.raw


def test_controls_and_log_probabilities_are_the_same_as_on_the_cpu(make_bench: Any, tiny: Any) -> None:
    bias = np.array([9.0], np.float32).tobytes()
    controls = m.Controls(frequency_penalty=1.0, bias_ids=bytes(4), bias_values=bias, bad_words=(bytes(8),))
    sampling = m.Sampling(temperature=1.0, controls=controls, logprobs=3, prompt_logprobs=2)
    chunks = [(0, [3, 1, 4], True), (1, [1, 5], True)]
    histories = {0: (3, [3, 1, 4]), 1: (2, [1, 5])}
    first = {"chunks": chunks, "admits": {0: sampling, 1: sampling}, "histories": histories}
    plans = [first | {"scored": [(0, -1)]}, *[{"decodes": [1, 0]}] * 5]
    kind = functools.partial(CudaDevice, cuda=Cuda(), place=torch.device("cpu"))
    results = [make_bench(tiny, **more).run_ahead(plans) for more in ({"device": kind}, {})]
    assert [(r.tokens, r.logprobs, r.prompt_logprobs) for r in results[0]] == [
        (r.tokens, r.logprobs, r.prompt_logprobs) for r in results[1]
    ]
