from typing import Any

import numpy as np
import pytest

from stretto.roles.executor.sim.cost import Roofline, Work, fixed, work_of
from stretto.roles.executor.sim.gpus import GPU, GPUS
from stretto.roles.executor.sim.models import simulated_model
from stretto.roles.executor.weights.model_config import parse

LAYERS, HEAD, KV = 7_504_924_672, 525_336_576, 131_072
"""Of llama-3-8b: parameters read by every step, by one that samples; bytes of a token's keys and values."""
LAYERS -= HEAD
LAUNCH = (9 * 32 + 4) * 0.5e-6


def roofline(**more: Any) -> Roofline:
    return Roofline(GPUS["h200"], simulated_model("llama-3-8b"), **more)


def test_work_counts_what_each_query_sees() -> None:
    counts, lengths = np.array([3, 1, 2]), np.array([3, 10, 5])
    assert work_of(counts, lengths, 2, 16) == Work(6, 2, 18, (1 + 2 + 3) + 10 + (4 + 5), 16)


def test_a_decode_step_takes_the_time_of_its_bytes() -> None:
    work = work_of(np.ones(256, np.int64), np.full(256, 1000), samples=256)
    assert roofline().bytes(work) == 2 * (LAYERS + HEAD) + KV * (256 * 1000 + 256)
    assert roofline()(work) == pytest.approx(LAUNCH + 48_597_835_776 / 4.8e12, rel=1e-12)


def test_an_fp8_pool_halves_the_bytes_of_keys_and_values() -> None:
    work = work_of(np.ones(256, np.int64), np.full(256, 1000), samples=256)
    assert roofline(kv_item_bytes=1).bytes(work) == 2 * (LAYERS + HEAD) + KV // 2 * (256 * 1000 + 256)


def test_a_prompt_takes_the_time_of_its_operations() -> None:
    work = work_of(np.array([8192]), np.array([8192]), samples=1)
    pairs = 8192 * 8193 // 2
    operations = 2 * (LAYERS * 8192 + HEAD) + 4 * 32 * 32 * 128 * pairs
    assert roofline().operations(work) == operations
    assert roofline()(work) == LAUNCH + operations / 989.5e12


def test_a_chunk_that_does_not_sample_leaves_the_output_projection_alone() -> None:
    work = work_of(np.array([1]), np.array([1]), samples=0)
    assert roofline().bytes(work) == 2 * LAYERS + KV * 2
    assert roofline().operations(work) == 2 * LAYERS + 4 * 32 * 32 * 128


def test_copied_pages_are_read_and_written() -> None:
    work = Work(tokens=1, samples=0, kv_tokens=1, pairs=1, copied=16)
    assert roofline().bytes(work) == 2 * LAYERS + KV * (1 + 1 + 32)


def test_efficiency_scales_both_rates_and_not_the_launches() -> None:
    work = work_of(np.ones(8, np.int64), np.full(8, 100), samples=8)
    peak, half = roofline()(work) - LAUNCH, roofline(efficiency=0.5)(work) - LAUNCH
    assert half == pytest.approx(2 * peak, rel=1e-12)


def test_a_small_model_can_be_counted_by_hand() -> None:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 4,
        "intermediate_size": 6,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "vocab_size": 10,
        "max_position_embeddings": 8,
    }
    step = Roofline(GPU(memory=1, bandwidth=1, flops=1), parse(config, {}))
    layers = (4 * 4 + 2 * 4 * 2 + 4 * 4) + 3 * 4 * 6 + 2 * 4 + 4
    work = Work(tokens=1, samples=1, kv_tokens=1, pairs=1)
    assert step.bytes(work) == 2 * (layers + 40) + 8 * 2
    assert step.operations(work) == 2 * (layers + 40) + 4 * 4


def test_nothing_to_do_takes_no_time() -> None:
    nothing = work_of(np.array([], np.int64), np.array([], np.int64), samples=0)
    assert roofline()(nothing) == fixed(0.002)(nothing) == 0.0
    assert fixed(0.002)(Work(1, 1, 1, 1)) == 0.002
