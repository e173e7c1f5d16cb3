"""The Llama family against transformers, and a row's bits against everything that must not change them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from stretto.roles import messages as m

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
WINDOWS = {"use_sliding_window": True, "sliding_window": 12, "num_hidden_layers": 4}
FP8 = torch.float8_e4m3fn
PRECISIONS: dict[str, dict[str, Any]] = {
    "stored": {},
    "int8": {"quantization": "int8"},
    "int4": {"quantization": "int4"},
    "float16-kv": {"kv_dtype": torch.float16},
    "int8-float16-kv": {"quantization": "int8", "kv_dtype": torch.float16},
    "fp8-kv": {"kv_dtype": FP8},
}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama-tied": ("Llama", {"tie_word_embeddings": True}),
    "llama-biases": ("Llama", {"attention_bias": True}),
    "llama3-rope": ("Llama", {"rope_parameters": LLAMA3}),
    "linear-rope": ("Llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}}),
    "mistral": ("Mistral", {"sliding_window": None, "head_dim": 32}),
    "mistral-window": ("Mistral", {"sliding_window": 16}),
    "qwen2": ("Qwen2", {}),
    "qwen2-windows": ("Qwen2", WINDOWS | {"max_window_layers": 1}),
    "qwen3-windows": ("Qwen3", WINDOWS | {"layer_types": [*["sliding_attention"] * 3, "full_attention"]}),
    "qwen3": ("Qwen3", {"head_dim": 32}),
}
TOLERANCE = 2e-4
"""Largest difference of logits, which are of the order of 10, between two float32 orders of summation."""
GREEDY = m.Sampling()


@pytest.fixture(params=KINDS)
def path(request: pytest.FixtureRequest, make_tiny: Callable[..., Path]) -> Path:
    kind, more = KINDS[request.param]
    return make_tiny(kind, **more)


def reference(path: Path, ids: Sequence[int]) -> torch.Tensor:
    """transformers' logits at every position, float32 [len(ids), vocab]."""
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    with torch.inference_mode():
        return model(torch.tensor([list(ids)])).logits[0]


def random_ids(count: int, seed: int = 0) -> list[int]:
    return torch.randint(256, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_logits_are_those_of_transformers(
    path: Path, chunk: int, load_model: Any, make_bench: Any, recorder: Any
) -> None:
    ids = random_ids(61)
    model = recorder(load_model(path))
    bench = make_bench(model)
    for at in range(0, len(ids), chunk):
        bench.step([(0, ids[at : at + chunk], True)], admits={0: GREEDY} if at == 0 else None)
    expected = reference(path, ids)
    ends = [min(at + chunk, len(ids)) - 1 for at in range(0, len(ids), chunk)]
    got = torch.cat(model.calls)
    assert (got - expected[ends]).abs().max() < TOLERANCE
    assert expected.abs().max() > 1


def test_decoding_continues_as_transformers_would(
    path: Path, load_model: Any, make_bench: Any, recorder: Any
) -> None:
    prompt = random_ids(19)
    model = recorder(load_model(path))
    (tokens,) = make_bench(model).generate([prompt], 12)
    expected = reference(path, prompt + tokens)[len(prompt) - 1 : -1]
    assert (torch.cat(model.calls) - expected).abs().max() < TOLERANCE
    assert tokens == expected.argmax(-1).tolist()


def solo(model: Any, make_bench: Any, recorder: Any, ids: Sequence[int], **pool: Any) -> torch.Tensor:
    """Logits of the last 8 of `ids`, each fed alone as a one-token step after one chunk with the others."""
    recorded = recorder(model)
    bench = make_bench(recorded, **pool)
    bench.step([(0, ids[:-8], False)], admits={0: GREEDY})
    for token in ids[-8:]:
        bench.step([(0, [token], True)])
    return torch.cat(recorded.calls)


@pytest.mark.parametrize("name", ["mistral-window", "qwen2-windows", "qwen3-windows"])
def test_logits_many_windows_into_a_sequence_are_those_of_transformers(
    name: str, make_tiny: Any, load_model: Any, make_bench: Any, recorder: Any
) -> None:
    kind, more = KINDS[name]
    path, ids = make_tiny(kind, **more), random_ids(180)
    model = recorder(load_model(path))
    bench = make_bench(model)
    ends = list(range(25, 176, 25)) + list(range(176, 181))
    for begin, end in zip([0, *ends], ends, strict=False):
        bench.step([(0, ids[begin:end], True)], admits={0: GREEDY} if begin == 0 else None)
    expected = reference(path, ids)[[end - 1 for end in ends]]
    assert (torch.cat(model.calls) - expected).abs().max() < TOLERANCE


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "mistral-window", "qwen3-windows"])
def test_a_rows_bits_do_not_depend_on_page_size_chunks_or_company(
    name: str, precision: str, make_tiny: Any, load_model: Any, make_bench: Any, recorder: Any
) -> None:
    kind, more = KINDS[name]
    model, ids = load_model(make_tiny(kind, **more), **PRECISIONS[precision]), random_ids(75)
    expected = solo(model, make_bench, recorder, ids, page_size=16)
    for page_size in (1, 5, 64):
        assert torch.equal(solo(model, make_bench, recorder, ids, page_size=page_size), expected)
    for chunk in (2, 9, 40):
        recorded = recorder(model)
        bench = make_bench(recorded)
        bench.step([(0, ids[: len(ids) - 1 - chunk], False)], admits={0: GREEDY})
        company = [(slot, random_ids(5 * slot, slot), True) for slot in (1, 2, 3)]
        bench.step([*company, (0, ids[-1 - chunk : -1], True)], admits=dict.fromkeys((1, 2, 3), GREEDY))
        bench.step([(0, ids[-1:], True)], decodes=[3, 1, 2])
        assert torch.equal(recorded.calls[-2][3], expected[-2])
        assert torch.equal(recorded.calls[-1][0], expected[-1])


@pytest.mark.parametrize("precision", PRECISIONS)
def test_greedy_tokens_do_not_depend_on_the_batch(
    precision: str, make_tiny: Any, load_model: Any, make_bench: Any
) -> None:
    model, prompts = (
        load_model(make_tiny(), **PRECISIONS[precision]),
        [random_ids(3 + 11 * n, n) for n in range(8)],
    )
    alone = [make_bench(model).generate([prompt], 20)[0] for prompt in prompts]
    assert make_bench(model).generate(prompts, 20) == alone
    assert make_bench(model, page_size=1).generate(prompts, 20, chunk=7) == alone


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_logits_of_a_sequence_are_the_same_in_every_batch_from_1_to_64(
    precision: str, make_tiny: Any, load_model: Any, make_bench: Any, recorder: Any
) -> None:
    model = load_model(make_tiny(), **PRECISIONS[precision])
    prompts = [random_ids(1 + n % 5, n) for n in range(64)]

    def logits(count: int) -> torch.Tensor:
        recorded = recorder(model)
        make_bench(recorded, slots=64).generate(prompts[:count], 2)
        return torch.stack(recorded.calls)

    every = logits(64)
    for count in range(1, 64):
        assert torch.equal(logits(count), every[:, :count])


def test_quantized_logits_are_near_the_exact_ones(
    make_tiny: Any, load_model: Any, make_bench: Any, recorder: Any
) -> None:
    path, ids = make_tiny(), random_ids(61)
    model = recorder(load_model(path, quantization="int8"))
    make_bench(model).step([(0, ids, True)], admits={0: GREEDY})
    expected = reference(path, ids)[-1]
    assert 1e-4 < (model.calls[0][0] - expected).norm() / expected.norm() < 0.1


@pytest.mark.parametrize("name", ["llama", "qwen3", "mistral-window", "qwen3-windows"])
def test_logits_over_an_fp8_cache_are_those_of_the_reference_kernels(
    name: str,
    make_tiny: Any,
    load_model: Any,
    make_bench: Any,
    recorder: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind, more = KINDS[name]
    path, ids = make_tiny(kind, **more), random_ids(61)

    def logits(**options: Any) -> torch.Tensor:
        model = recorder(load_model(path, **options))
        make_bench(model).step([(0, ids, True)], admits={0: GREEDY})
        return model.calls[0][0]

    exact, rounded = logits(), logits(kv_dtype=FP8)
    for op in ("paged_attention", "rope_and_cache"):
        monkeypatch.setattr(f"stretto.kernels.{op}.cpu", SimpleNamespace(fits=lambda *args: False))
    expected = logits(kv_dtype=FP8)
    assert (rounded - expected).norm() / expected.norm() < 1e-3
    assert (exact - expected).norm() / expected.norm() > 1e-2


def test_an_fp8_cache_is_in_units_of_the_checkpoints_scales(
    make_tiny: Any, load_model: Any, make_bench: Any, add_scales: Any
) -> None:
    units = {"k_scale": torch.tensor([4.0, 0.25]), "v_scale": torch.tensor(0.5)}
    pools = []
    for path in (make_tiny(), add_scales(make_tiny(), units)):
        bench = make_bench(load_model(path, kv_dtype=FP8), pages=1)
        bench.step([(0, random_ids(16), True)], admits={0: GREEDY})
        pools.append([part[0].float() for part in bench.runner._cache])  # of the first layer
    close = partial(torch.testing.assert_close, rtol=0)  # powers of two: what is small enough loses bits
    close(pools[1][0] * units["k_scale"][:, None], pools[0][0], atol=4 * 2**-10)
    close(pools[1][1] * units["v_scale"], pools[0][1], atol=2**-10)


def test_half_precision_weights_compute_in_float32(
    tmp_path: Path, make_tiny: Any, load_model: Any, make_bench: Any, recorder: Any
) -> None:
    import transformers

    path = make_tiny()
    half = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16)
    half.save_pretrained(tmp_path)
    ids = random_ids(30)
    model = recorder(load_model(tmp_path))
    make_bench(model).step([(0, ids, True)], admits={0: GREEDY})
    assert (model.calls[0][0] - reference(tmp_path, ids)[-1]).abs().max() < TOLERANCE


def test_a_step_that_samples_nothing_computes_no_logits(tiny: Any, make_bench: Any, recorder: Any) -> None:
    model = recorder(tiny)
    assert make_bench(model).step([(0, [1, 2], False)], admits={0: GREEDY}) == []
    assert model.calls == []


def test_the_embedded_model_answers_as_in_transformers(
    model_dir: Path, load_model: Any, make_bench: Any
) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    turns = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    prompt = tokenizer.encode(turns, add_special_tokens=False).ids
    (tokens,) = make_bench(load_model(model_dir)).generate([prompt], 24)
    assert tokenizer.decode(tokens).startswith("The capital of France is Paris.")
    expected = reference(model_dir, prompt + tokens)[len(prompt) - 1 : -1]
    assert tokens == expected.argmax(-1).tolist()
