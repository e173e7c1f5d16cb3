"""The whole step in Triton's kernels, under its interpreter: what a GPU runs, down to padding and strides."""

from __future__ import annotations

import sys
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import interpreting
import numpy as np
import pytest
import torch

from stretto.roles import messages as m
from stretto.roles.executor.runner_device import DeviceRunner

if "triton" not in sys.modules:
    interpreting.interpret()

OPS = (
    "apply_controls",
    "copy_pages",
    "count_tokens",
    "logprobs",
    "paged_attention",
    "prepare_step",
    "rms_norm",
    "rope_and_cache",
    "sample",
    "silu_and_mul",
)
GREEDY = m.Sampling()


@pytest.fixture
def bench(
    request: Any, make_bench: Any, make_tiny: Any, load_model: Any, monkeypatch: pytest.MonkeyPatch
) -> Any:
    """A runner like that of a GPU, whose every kernel but the matrix products is Triton's; the test's
    parameter, if it has one, is the type of the pool.
    """
    tiny = load_model(make_tiny(), kv_dtype=getattr(request, "param", None))
    expected = make_bench(tiny)
    monkeypatch.setattr(tiny, "_replay", None)

    def made() -> Any:
        for op in OPS:
            package, kernels = (import_module(f"stretto.kernels.{op}{end}") for end in ("", ".triton"))
            monkeypatch.setattr(package, "cpu", SimpleNamespace(fits=lambda *args: False), raising=False)
            monkeypatch.setattr(package, "reference", kernels)
        return make_bench(tiny, runner=DeviceRunner, page_size=4, slots=5)

    return expected, made


def tokens(bench: Any, plans: list[dict[str, Any]]) -> list[list[int]]:
    return [np.frombuffer(result.tokens, np.int32).tolist() for result in bench.run_ahead(plans)]


def test_prompts_chunks_decodes_and_padding(bench: Any) -> None:
    chunks = [(0, [3, 1, 4, 1, 5], True), (1, [1, 5], False), (2, [9, 2, 6], True)]
    sampled = m.Sampling(temperature=0.8, top_k=30, top_p=0.9, seed=3)
    plans: list[dict[str, Any]] = [
        {"chunks": chunks, "admits": {0: GREEDY, 1: sampled, 2: GREEDY}},
        {"chunks": [(1, [7], True)], "decodes": [0, 2]},
        *[{"decodes": [2, 0, 1]}] * 4,
        {"decodes": [1]},
    ]
    on_cpu, on_gpu = bench
    expected = tokens(on_cpu, plans)
    assert tokens(on_gpu(), plans) == expected


@pytest.mark.parametrize("bench", [torch.float8_e4m3fn], indirect=True)
def test_a_pool_in_fp8(bench: Any) -> None:
    chunks = [(0, [3, 1, 4, 1, 5], True), (1, [9, 2, 6], True)]
    plans = [{"chunks": chunks, "admits": {0: GREEDY, 1: GREEDY}}, *[{"decodes": [1, 0]}] * 2]
    on_cpu, on_gpu = bench
    expected = tokens(on_cpu, plans)
    assert tokens(on_gpu(), plans) == expected


def test_controls_and_log_probabilities(bench: Any) -> None:
    bias = np.array([9.0], np.float32).tobytes()
    controls = m.Controls(frequency_penalty=1.0, bias_ids=bytes(4), bias_values=bias, bad_words=(bytes(8),))
    wanting = m.Sampling(controls=controls, logprobs=2, prompt_logprobs=1)
    first = {"chunks": [(0, [3, 1, 4], True), (1, [1, 5], True)], "admits": {0: wanting, 1: GREEDY}}
    plans = [first | {"histories": {0: (3, [3, 1, 4])}, "scored": [(0, -1)]}, *[{"decodes": [1, 0]}] * 3]
    on_cpu, on_gpu = bench
    expected, found = on_cpu.run_ahead(plans), on_gpu().run_ahead(plans)
    assert [result.tokens for result in found] == [result.tokens for result in expected]
    for one, other in zip(found, expected, strict=True):
        for row, wanted in zip(one.logprobs, other.logprobs, strict=True):
            assert (row.row, row.rank, row.top_ids) == (wanted.row, wanted.rank, wanted.top_ids)
            assert row.logprob == pytest.approx(wanted.logprob, abs=1e-4)
