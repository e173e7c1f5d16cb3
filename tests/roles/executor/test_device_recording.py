"""The real scheduler core and the real runner on a device that is as late and as disorderly as it may be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from stretto.kernels.prepare_step import StepInputs
from stretto.roles import messages as m
from stretto.roles.executor.host_kv import StagedMover, allocate_host
from stretto.roles.executor.kv import PageShape
from stretto.roles.executor.runner_device import DeviceRunner
from stretto.roles.executor.transfers import Transfers
from stretto.roles.scheduler.below import Below
from stretto.roles.scheduler.core import Core
from stretto.roles.scheduler.limits import Limits
from stretto.tests.roles.executor.device_recording import RecordingDevice
from stretto.tests.roles.executor.late_cuda import LateEvent, LateStream, Violation, World

PAGE, PAGES, SLOTS, LONGEST = 4, 24, 4, 64


class Server:
    """Core, runner and recording device, with host memory below the pool."""

    def __init__(self, model: Any, seed: int, graphs: bool = True) -> None:
        self.world = World(seed)
        self.device = RecordingDevice(lambda: None, self.world)
        shape = PageShape(model.kv_layers, PAGE, model.kv_heads, model.head_dim, model.kv_dtype)
        cache = shape.allocate(PAGES, torch.device("cpu"))
        for part in cache:
            part.fill_(float("nan"))
        host = allocate_host(shape, 32, torch.device("cpu"))
        mover, stream = StagedMover(cache, host), self.device.stream()
        self.world.may_wait_for.add(stream.raw.name)
        self.transfers = Transfers(self.device, stream, mover, host, None, shape.bytes, lambda: None)
        self.runner = DeviceRunner(
            device=self.device,
            model=model,
            cache=cache,
            slots=SLOTS,
            pages_per_slot=LONGEST // PAGE,
            wake=lambda: None,
            transfers=self.transfers,
            graphs=graphs,
        )
        below = Below(host_pages=32, write="through", copy_seconds=1e-9, compute_seconds=1.0)
        self.core = Core(Limits(PAGES, PAGE, SLOTS, 16, LONGEST, below=below))
        self.core._requests.batch.ratio.value = 0.0  # admits more than the pool can hold to the end
        self.tokens: dict[int, list[int]] = {}
        self.ended: dict[int, str] = {}
        self.decodes = self.copies = self.swapped_in = 0

    def submit(self, uid: int, prompt: list[int], count: int, sampling: m.Sampling) -> None:
        ids = np.array(prompt, np.int32).tobytes()
        self.core.submit([m.Request(uid, 0.0, ids, count, (), sampling, m.Output(0, True))])

    def turn(self) -> None:
        """Launch what may be launched, let the world go on a little, and hand over what has landed."""
        while self.runner.ready and (plan := self.core.next_plan()) is not None:
            self._move()
            self.copies += len(plan.copies) // 8
            self.decodes += not plan.chunks
            self.runner.launch(plan)
        self._move()
        for moved in self.transfers.collect():
            self.core.moved(moved)
        for result in self.runner.collect():
            self.core.advance(result)
        self.core.check()
        for _, message in self.core.take():
            self._hear(message)

    def run(self) -> None:
        """Until all requests have ended."""
        while self.core.busy:
            self.turn()

    def _move(self) -> None:
        for move in self.core.take_moves():
            self.swapped_in += move.kind == "in"
            self.transfers.start(move)

    def _hear(self, message: m.Tokens) -> None:
        uids, ids = np.frombuffer(message.uids, np.int64), np.frombuffer(message.ids, np.int32)
        for uid, token in zip(uids.tolist(), ids.tolist(), strict=True):
            self.tokens.setdefault(uid, []).append(token)
        self.ended |= {end.uid: end.reason for end in message.ends}


@pytest.fixture
def model(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Without the CPU's own replay of layers."""
    monkeypatch.setattr(tiny, "_replay", None)
    return tiny


@pytest.fixture
def serve(model: Any) -> Any:
    servers: list[Server] = []

    def make(seed: int, **more: Any) -> Server:
        servers.append(Server(model, seed, **more))
        return servers[-1]

    yield make
    for server in servers:
        server.device.close()


SHARED = [7, 7, 3, 9, 2, 8]
REQUESTS: dict[int, tuple[list[int], int, m.Sampling]] = {
    1: ([*SHARED, 5], 30, m.Sampling()),
    2: ([1, 2, 3], 25, m.Sampling(temperature=1.1, top_p=0.9, seed=4)),
    3: ([*SHARED, 6, 1, 1, 4], 28, m.Sampling(temperature=0.7, top_k=20, seed=5, logprobs=2)),
    4: (list(range(20, 45)), 12, m.Sampling(temperature=1.0, controls=m.Controls(0.5, 0.5))),
    5: ([*SHARED, 5, 4], 20, m.Sampling()),
    6: ([9], 30, m.Sampling(temperature=1.4, min_p=0.02, seed=6)),
    7: (SHARED[:5], 22, m.Sampling(temperature=1.0, controls=m.Controls(repetition_penalty=1.2), seed=8)),
    8: ([*range(20, 45), 3], 30, m.Sampling()),
    9: ([*SHARED, 5, 4, 4], 30, m.Sampling(temperature=0.9, seed=9)),
}
ABORTED = 2


@pytest.fixture
def alone(make_bench: Any, model: Any) -> dict[int, list[int]]:
    """The tokens of every request, by itself, with rows made on the host."""
    return {uid: tokens_alone(make_bench(model), *request) for uid, request in REQUESTS.items()}


def tokens_alone(bench: Any, prompt: list[int], count: int, sampling: m.Sampling) -> list[int]:
    chunks, histories = [(0, prompt, True)], {0: (len(prompt), prompt)}
    first = {"chunks": chunks, "admits": {0: sampling}, "histories": histories}
    results = bench.run_ahead([first, *[{"decodes": [0]}] * (count - 1)])
    return [int(np.frombuffer(result.tokens, np.int32)[0]) for result in results]


@pytest.mark.parametrize("graphs", [True, False], ids=["graphs", "no graphs"])
@pytest.mark.parametrize("seed", range(4))
def test_a_mixed_load_has_the_tokens_of_each_request_alone(
    serve: Any, alone: dict[int, list[int]], seed: int, graphs: bool
) -> None:
    server = serve(seed, graphs=graphs)
    load(server)
    server.core.abort([ABORTED])
    server.run()
    assert alone.pop(ABORTED)[: len(server.tokens.get(ABORTED, []))] == server.tokens.pop(ABORTED, [])
    assert server.tokens == alone
    assert server.ended == dict.fromkeys(alone, "length") | {ABORTED: "abort"}
    assert server.decodes > 20
    assert server.copies
    assert server.swapped_in
    assert server.core.take_counts().retractions
    assert any(parts.forward.captured for parts in server.runner._decode._parts.values()) == graphs


def load(server: Server) -> None:
    for uid, request in REQUESTS.items():
        server.submit(uid, *request)
        for _ in range(server.world.random.randrange(20)):
            server.turn()


class Waiting:
    """A model that looks at its input."""

    def __init__(self, model: Any, look: Callable[[torch.Tensor], object]) -> None:
        self._model, self._look = model, look

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, ids: torch.Tensor, *rest: Any) -> Any:
        self._look(ids)
        return self._model(ids, *rest)


@pytest.mark.parametrize(
    "look",
    [
        lambda ids: ids.tolist(),
        lambda ids: ids.sum().item(),
        lambda ids: bool((ids == 0).any()),
        lambda ids: ids[ids > 0],
        lambda ids: ids.cpu(),
        lambda ids: torch.tensor([1, 2]),
    ],
    ids=["tolist", "item", "bool", "mask", "cpu", "tensor"],
)
def test_a_wait_of_the_host_for_a_number_is_found(serve: Any, look: Any) -> None:
    server = serve(0)
    server.runner._model = server.runner._decode._model = Waiting(server.runner._model, look)
    with pytest.raises(Violation, match="waits for the compute stream"):
        load(server)


def test_a_wait_of_the_host_for_an_event_is_found(serve: Any) -> None:
    server = serve(0)
    server.submit(1, *REQUESTS[1])
    server.runner.launch(server.core.next_plan())
    with pytest.raises(Violation, match="the host waits for stream 4"):
        server.runner._steps[0].landed.raw.synchronize()


def test_an_input_written_again_too_early_is_found(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve(0)
    server.device._staging[1] = server.device._staging[0]
    monkeypatch.setattr(LateEvent, "synchronize", lambda event: None)
    with pytest.raises(Violation, match="uses pinned input 0 without having waited"):
        load(server)


def test_an_output_written_again_too_early_is_found(serve: Any) -> None:
    server = serve(0)
    server.runner._landings.pop()
    with pytest.raises(Violation, match=r"uses (device|pinned) output without having waited"):
        load(server)


def test_a_step_that_does_not_wait_for_its_input_is_found(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LateStream, "wait_event", deaf("stream 4"))
    with pytest.raises(Violation, match=r"uses device input . without having waited"):
        load(serve(0))


def test_a_fetch_that_does_not_wait_for_its_step_is_found(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LateStream, "wait_event", deaf("stream 1"))
    with pytest.raises(
        Violation, match=r"uses device output without having waited|the host waits for stream 4"
    ):
        load(serve(0))


def deaf(name: str) -> Callable[[LateStream, LateEvent], None]:
    """A `wait_event` that one stream passes over."""
    wait = LateStream.wait_event
    return lambda stream, event: None if stream.name == name else wait(stream, event)


def test_a_graph_of_memory_that_moved_is_found(serve: Any) -> None:
    server = decoding(serve(0))
    for parts in server.runner._decode._parts.values():
        parts.bucket.inputs = StepInputs(*(part.clone() for part in parts.bucket.inputs))
    with pytest.raises(Violation, match="a graph would still do"):
        server.run()


def test_a_graph_of_a_size_that_changed_is_found(serve: Any) -> None:
    server = decoding(serve(0))
    for parts in server.runner._decode._parts.values():
        parts.bucket.width -= 1
    with pytest.raises(Violation, match="a graph would still do"):
        server.run()


def decoding(server: Server) -> Server:
    """In the midst of steps that are replayed."""
    server.submit(1, *REQUESTS[1])
    while len(server.tokens.get(1, [])) < 10:
        server.turn()
    return server
