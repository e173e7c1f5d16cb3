from typing import Any

import pytest

from stretto.roles import messages as m
from stretto.roles.executor.decode_steps import EAGER, Part
from stretto.roles.executor.runner_device import DeviceRunner

GREEDY = m.Sampling()


class Device:
    """Notes what is captured and replayed."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def capture(self, work: Any) -> Any:
        self.log.append("capture")
        return lambda: self.log.append("replay")


def test_work_is_captured_when_it_has_been_done_a_few_times() -> None:
    device = Device()
    part = Part(lambda: device.log.append("work"), device, graphs=True)
    for _ in range(EAGER + 2):
        part()
    assert device.log == ["work"] * EAGER + ["capture", "replay", "replay"]


def test_without_graphs_nothing_is_captured() -> None:
    device = Device()
    part = Part(lambda: device.log.append("work"), device, graphs=False)
    for _ in range(EAGER + 2):
        part()
    assert device.log == ["work"] * (EAGER + 2)
    assert not part.captured


@pytest.fixture
def bench(make_bench: Any, tiny: Any) -> Any:
    return make_bench(tiny, runner=DeviceRunner, page_size=2, max_len=512)


def test_there_is_one_bucket_for_all_steps_that_fit_it(bench: Any) -> None:
    bench.step([(slot, [1, 2], True) for slot in range(7)], admits=dict.fromkeys(range(7), GREEDY))
    for decodes in ([0, 1, 2], [4, 5, 6, 0], [0], [0, 1, 2, 3, 4, 5, 6]):
        bench.step(decodes=decodes)
    assert list(bench.runner._decode._parts) == [(4, 64), (1, 64), (8, 64)]


def test_longer_sequences_have_another(bench: Any) -> None:
    bench.step([(0, [1] * 127, True)], admits={0: GREEDY})
    for _ in range(2):
        bench.step(decodes=[0])
    assert list(bench.runner._decode._parts) == [(1, 64), (1, 256)]


def test_rows_that_want_more_than_a_token_share_the_forward_part(bench: Any) -> None:
    bench.step([(0, [1, 2], True)], admits={0: m.Sampling(logprobs=1)})
    for _ in range(EAGER + 1):
        bench.step(decodes=[0])
    (parts,) = bench.runner._decode._parts.values()
    assert (parts.forward.captured, parts.sample.captured) == (True, False)
