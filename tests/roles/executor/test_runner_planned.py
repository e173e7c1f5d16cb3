"""Plans are of the step that runs, whatever is in flight: tokens are those of attention that needs none."""

from __future__ import annotations

from functools import partial
from typing import Any

import flashinfer_double
import pytest
import torch
from flashinfer_double import BatchPrefillWithPagedKVCacheWrapper as Wrapper

from stretto.kernels.paged_attention.flashinfer import FlashInferAttention
from stretto.roles import messages as m
from stretto.roles.executor.runner_planned import PlannedRunner

WINDOWS = {"use_sliding_window": True, "sliding_window": 12, "max_window_layers": 1, "num_hidden_layers": 4}
GREEDY, SAMPLED = m.Sampling(), m.Sampling(temperature=0.8, seed=3)
PLANS: list[dict[str, Any]] = [
    {"chunks": [(0, [3, 1, 4, 1, 5], True), (1, [1, 5], False)], "admits": {0: GREEDY, 1: SAMPLED}},
    {"chunks": [(1, [7] * 40, True), (2, [9] * 17, True)], "decodes": [0], "admits": {2: GREEDY}},
    *[{"decodes": [2, 0, 1]}] * 3,
    {},
    {"decodes": [1]},
    {"chunks": [(0, [8] * 30, True)], "decodes": [2], "admits": {0: GREEDY}},
]


@pytest.mark.parametrize(("kind", "more", "groups"), [("Llama", {}, 1), ("Qwen2", WINDOWS, 4)])
def test_two_steps_in_flight_each_have_a_plan_of_their_own(
    kind: str,
    more: dict[str, Any],
    groups: int,
    make_tiny: Any,
    load_model: Any,
    make_bench: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Wrapper, "made", [], raising=False)
    attention = FlashInferAttention(flashinfer_double, torch.device("cpu"))
    path = make_tiny(kind, **more)
    expected = make_bench(load_model(path), page_size=4).run_ahead(PLANS)
    runner = partial(PlannedRunner, attention=attention)
    found = make_bench(load_model(path, attention=attention), page_size=4, runner=runner).run_ahead(PLANS)
    assert [result.tokens for result in found] == [result.tokens for result in expected]
    assert len(Wrapper.made) == 2 * groups
    assert sum(len(wrapper.plans) for wrapper in Wrapper.made) == groups * (len(PLANS) - 1)
