"""The runner that makes its rows on the device: the same tokens as the one that makes them on the host."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from stretto.roles import messages as m
from stretto.roles.executor.runner_device import DeviceRunner

GREEDY = m.Sampling()
EAGER = functools.partial(DeviceRunner, graphs=False)
RUNNERS = pytest.mark.parametrize("runner", [DeviceRunner, EAGER], ids=["graphs", "no graphs"])


@RUNNERS
@pytest.mark.parametrize("page_size", [1, 3, 16])
def test_prompts_in_chunks_then_decodes(make_bench: Any, tiny: Any, runner: Any, page_size: int) -> None:
    prompts = [[3, 1, 4], [1, 5, 9, 2, 6], [5]]
    sampling = {"temperature": 1.3, "top_p": 0.9, "seed": 11}
    expected = make_bench(tiny).generate(prompts, 12, chunk=2, **sampling)
    bench = make_bench(tiny, runner=runner, page_size=page_size)
    assert bench.generate(prompts, 12, chunk=2, **sampling) == expected


@RUNNERS
def test_steps_launched_ahead(make_bench: Any, tiny: Any, runner: Any) -> None:
    chunks = [(slot, [slot + 1, 7, 9], True) for slot in range(5)]
    first = {"chunks": chunks, "admits": dict.fromkeys(range(5), GREEDY)}
    plans = [first, *[{"decodes": [4, 2, 0]}] * 6, *[{"decodes": [0, 1, 2, 3, 4]}] * 6]
    expected = [result.tokens for result in make_bench(tiny).run_ahead(plans)]
    bench = make_bench(tiny, runner=runner)
    assert [result.tokens for result in bench.run_ahead(plans)] == expected


@RUNNERS
def test_controls_and_log_probabilities_between_plain_steps(make_bench: Any, tiny: Any, runner: Any) -> None:
    bias = np.array([9.0], np.float32).tobytes()
    controls = m.Controls(frequency_penalty=1.0, bias_ids=bytes(4), bias_values=bias, bad_words=(bytes(8),))
    wanting = m.Sampling(temperature=1.0, controls=controls, logprobs=3, prompt_logprobs=2)
    chunks = [(0, [3, 1, 4], True), (1, [1, 5], True)]
    first = {
        "chunks": chunks,
        "admits": {0: wanting, 1: GREEDY},
        "histories": {0: (3, [3, 1, 4])},
        "scored": [(0, -1)],
    }
    plans = [first, *[{"decodes": [1]}] * 4, *[{"decodes": [1, 0]}] * 5, *[{"decodes": [1]}] * 2]
    found = [make_bench(tiny, **more).run_ahead(plans) for more in ({"runner": runner}, {})]
    assert [(r.tokens, r.logprobs, r.prompt_logprobs) for r in found[0]] == [
        (r.tokens, r.logprobs, r.prompt_logprobs) for r in found[1]
    ]


def test_a_write_without_a_page_is_refused(make_bench: Any, tiny: Any) -> None:
    bench = make_bench(tiny, runner=DeviceRunner, page_size=1)
    plan = bench.plan([(0, [1, 2], True)], admits={0: GREEDY})
    plan = m.Plan(step=1, admits=plan.admits, chunks=plan.chunks, chunk_ids=plan.chunk_ids)
    with pytest.raises(RuntimeError, match="slot 0 has no page for position 0"):
        bench.runner.launch(plan)


def test_a_steady_step_is_one_array(make_bench: Any, tiny: Any) -> None:
    bench = make_bench(tiny, runner=DeviceRunner, page_size=2)
    bench.step([(0, [1, 2, 3], True)], admits={0: GREEDY})
    batch = bench.runner._make_batch(bench.plan(decodes=[0]))
    sent: list[Any] = []
    batch.move(lambda arrays: sent.extend(arrays) or arrays)
    assert [array.tolist() for array in sent] == [[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]]
