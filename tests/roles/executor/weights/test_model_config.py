from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stretto.roles.executor.weights.errors import ModelError
from stretto.roles.executor.weights.model_config import ModelConfig, RopeScaling, load_model_config

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 260,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 5e5,
    "torch_dtype": "bfloat16",
    "eos_token_id": 7,
}
SCALING = {
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


KV_ALONE = {
    "quant_method": "compressed-tensors",
    "config_groups": {},
    "kv_cache_scheme": {"type": "float", "num_bits": 8, "strategy": "tensor", "dynamic": False},
}
SLIDING = "sliding_attention"
SWITCHED = {"sliding_window": 128, "use_sliding_window": True}


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., ModelConfig]:
    def load(generation: dict[str, Any] | None = None, **changes: Any) -> ModelConfig:
        (tmp_path / "config.json").write_text(json.dumps({**LLAMA, **changes}))
        if generation is not None:
            (tmp_path / "generation_config.json").write_text(json.dumps(generation))
        return load_model_config(tmp_path)

    return load


def test_every_field_of_a_llama(load: Callable[..., ModelConfig]) -> None:
    assert load() == ModelConfig(
        architecture="LlamaForCausalLM",
        hidden_size=64,
        intermediate_size=128,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        vocab_size=260,
        rms_norm_eps=1e-5,
        rope_theta=5e5,
        rope_scaling=None,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        attention_bias=False,
        attention_output_bias=False,
        qk_norm=False,
        sliding_window=None,
        eos_token_ids=(7,),
        hidden_act="silu",
        dtype="bfloat16",
    )


@pytest.mark.parametrize(
    "spelling",
    [
        {"rope_theta": 1e6, "rope_scaling": {"rope_type": "llama3", **SCALING}},
        {"rope_theta": None, "rope_parameters": {"rope_type": "llama3", "rope_theta": 1e6, **SCALING}},
    ],
)
def test_both_spellings_of_rope_scaling_mean_the_same(
    load: Callable[..., ModelConfig], spelling: dict[str, Any]
) -> None:
    config = load(**spelling)
    assert config.rope_theta == 1e6
    assert config.rope_scaling == RopeScaling(type="llama3", factor=32.0)


def test_linear_scaling_with_the_old_key(load: Callable[..., ModelConfig]) -> None:
    scaling = load(rope_scaling={"type": "linear", "factor": 2.0}).rope_scaling
    assert scaling is not None
    assert (scaling.type, scaling.factor) == ("linear", 2.0)


def test_the_new_dtype_key_is_read(load: Callable[..., ModelConfig]) -> None:
    assert load(torch_dtype=None, dtype="float16").dtype == "float16"


def test_generation_config_decides_what_ends_an_answer(load: Callable[..., ModelConfig]) -> None:
    assert load(generation={"eos_token_id": [3, 9]}).eos_token_ids == (3, 9)
    assert load(generation={}).eos_token_ids == (7,)


@pytest.mark.parametrize(
    ("architecture", "qkv", "output", "norm"),
    [
        ("LlamaForCausalLM", True, True, False),
        ("MistralForCausalLM", False, False, False),
        ("Qwen2ForCausalLM", True, False, False),
        ("Qwen3ForCausalLM", True, True, True),
    ],
)
def test_biases_and_norms_follow_from_the_architecture(
    load: Callable[..., ModelConfig], architecture: str, qkv: bool, output: bool, norm: bool
) -> None:
    config = load(architectures=[architecture], attention_bias=True)
    assert (config.attention_bias, config.attention_output_bias, config.qk_norm) == (qkv, output, norm)


@pytest.mark.parametrize(
    ("architecture", "changes", "windows"),
    [
        ("LlamaForCausalLM", {"sliding_window": 128}, [0, 0, 0]),
        ("MistralForCausalLM", {"sliding_window": 128}, [128, 128, 128]),
        ("MistralForCausalLM", {"sliding_window": None}, [0, 0, 0]),
        ("Qwen2ForCausalLM", {"sliding_window": 128, "use_sliding_window": False}, [0, 0, 0]),
        ("Qwen2ForCausalLM", {"sliding_window": 128, "use_sliding_window": True}, [0, 0, 0]),
        ("Qwen3ForCausalLM", SWITCHED | {"max_window_layers": 0}, [128, 128, 128]),
        ("Qwen2ForCausalLM", SWITCHED | {"max_window_layers": 1}, [0, 128, 128]),
        ("Qwen3ForCausalLM", SWITCHED | {"layer_types": [SLIDING, "full_attention", SLIDING]}, [128, 0, 128]),
    ],
)
def test_the_sliding_window_is_the_one_transformers_applies(
    load: Callable[..., ModelConfig], architecture: str, changes: dict[str, Any], windows: list[int]
) -> None:
    config = load(architectures=[architecture], num_hidden_layers=3, **changes)
    assert [config.window_of(layer) for layer in range(3)] == windows


@pytest.mark.parametrize(
    "architecture", ["LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"]
)
def test_what_transformers_saves_is_understood(
    tmp_path: Path, tiny: Callable[..., Any], architecture: str
) -> None:
    tiny(architecture).config.save_pretrained(tmp_path)
    raw = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**raw, "architectures": [architecture]}))
    config = load_model_config(tmp_path)
    assert (config.head_dim, config.num_kv_heads, config.rope_theta) == (16, 2, 10000.0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"architectures": ["MambaForCausalLM"]}, "LlamaForCausalLM, MistralForCausalLM"),
        ({"architectures": None}, "None is not supported"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "'yarn'"),
        ({"hidden_act": "gelu"}, "'gelu'"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"quantization_config": {"quant_method": "awq"}}, "'awq'"),
        ({"quantization_config": KV_ALONE | {"config_groups": {"group_0": {}}}}, "'compressed-tensors'"),
        ({"quantization_config": KV_ALONE | {"quant_algo": "FP8"}}, "'compressed-tensors'"),
        (
            {"quantization_config": KV_ALONE | {"kv_cache_scheme": {"type": "int"}}},
            "quantised",
        ),
        ({"torch_dtype": "float8_e4m3fn"}, "float8_e4m3fn"),
        ({"hidden_size": "wide"}, "not a valid model configuration"),
        (
            SWITCHED | {"architectures": ["Qwen2ForCausalLM"], "layer_types": ["chunked_attention"]},
            "layer_types .*chunked_attention",
        ),
    ],
)
def test_what_would_be_computed_wrongly_is_refused(
    load: Callable[..., ModelConfig], changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ModelError, match=words):
        load(**changes)


def test_missing_and_broken_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json does not exist"):
        load_model_config(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError, match=r"cannot read .*config\.json"):
        load_model_config(tmp_path)
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    with pytest.raises(ModelError, match="lacks 'hidden_size'"):
        load_model_config(tmp_path)


def test_scales_of_a_kv_cache_leave_the_weights_as_they_are(load: Any) -> None:
    assert load(quantization_config=KV_ALONE) == load()
