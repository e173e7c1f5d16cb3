from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from stretto.roles.executor.weights import gguf_config
from stretto.roles.executor.weights.errors import ModelError
from stretto.roles.executor.weights.gguf_file import GGUFFile

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def divisors(model: Any) -> np.ndarray:
    """What llama.cpp's converter stores as `rope_freqs.weight`, from transformers' own frequencies."""
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](model.config, "cpu")
    head_dim = model.config.head_dim
    plain = 1.0 / model.config.rope_parameters["rope_theta"] ** (torch.arange(0, head_dim, 2) / head_dim)
    return (plain / scaled).numpy().astype(np.float32)


@pytest.mark.parametrize(
    ("architecture", "name"), [("llama", "Llama"), ("qwen2", "Qwen2"), ("qwen3", "Qwen3")]
)
def test_hyperparameters_come_back(
    tiny: Callable[..., Any], write_gguf: Callable[..., Path], architecture: str, name: str
) -> None:
    model = tiny(f"{name}ForCausalLM", rms_norm_eps=1e-5)
    config = gguf_config.config(GGUFFile(write_gguf(model, architecture)), "float16")
    assert config["architectures"] == [f"{name}ForCausalLM"]
    keys = [
        *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "model_type"),
        *("num_key_value_heads", "head_dim", "vocab_size", "max_position_embeddings", "rms_norm_eps"),
    ]
    assert {key: config[key] for key in keys} == {key: getattr(model.config, key) for key in keys}
    assert config["rope_theta"] == model.config.rope_parameters["rope_theta"]
    assert config["tie_word_embeddings"] is False


def test_a_window_makes_it_a_mistral(tiny: Callable[..., Any], write_gguf: Callable[..., Path]) -> None:
    path = write_gguf(tiny("MistralForCausalLM", sliding_window=64), "llama")
    config = gguf_config.config(GGUFFile(path), "float16")
    assert (config["architectures"], config["sliding_window"]) == (["MistralForCausalLM"], 64)


def test_llama3_scaling_is_recovered_from_its_divisors(
    tiny: Callable[..., Any], write_gguf: Callable[..., Path]
) -> None:
    model = tiny("LlamaForCausalLM", rope_parameters=LLAMA3, head_dim=64)
    path = write_gguf(
        model, "llama", edit=lambda writer: writer.add_tensor("rope_freqs.weight", divisors(model))
    )
    scaling = gguf_config.config(GGUFFile(path), "float16")["rope_scaling"]
    assert scaling == {key: value for key, value in LLAMA3.items() if key != "rope_theta"}


def test_other_divisors_are_refused(tiny: Callable[..., Any], write_gguf: Callable[..., Path]) -> None:
    odd = np.linspace(1, 8, 8, dtype=np.float32)
    path = write_gguf(
        tiny("LlamaForCausalLM"), "llama", edit=lambda writer: writer.add_tensor("rope_freqs.weight", odd)
    )
    with pytest.raises(ModelError, match="frequency factors"):
        gguf_config.config(GGUFFile(path), "float16")


def linear(writer: gguf.GGUFWriter) -> None:
    writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
    writer.add_rope_scaling_factor(4.0)


def test_linear_scaling(tiny: Callable[..., Any], write_gguf: Callable[..., Path]) -> None:
    config = gguf_config.config(
        GGUFFile(write_gguf(tiny("LlamaForCausalLM"), "llama", edit=linear)), "float16"
    )
    assert config["rope_scaling"] == {"rope_type": "linear", "factor": 4.0}


def test_what_ends_an_answer(tiny: Callable[..., Any], write_gguf: Callable[..., Path]) -> None:
    model = tiny("LlamaForCausalLM")
    assert gguf_config.end_ids(GGUFFile(write_gguf(model, "llama"))) == [2, 3]

    def unknown(writer: gguf.GGUFWriter) -> None:
        writer.add_unk_token_id(3)
        writer.add_eot_token_id(1)

    path = write_gguf(model, "llama", edit=unknown, name="unknown.gguf")
    assert gguf_config.generation_config(GGUFFile(path)) == {"bos_token_id": 1, "eos_token_id": [2, 1]}


@pytest.mark.parametrize(
    ("architecture", "edit", "words"),
    [
        ("mamba", lambda writer: None, "llama, qwen2, qwen3"),
        ("llama", lambda writer: writer.add_expert_count(8), "mixture-of-experts"),
        ("llama", lambda writer: writer.add_uint16("split.count", 2), "one part of several"),
        ("llama", lambda writer: writer.add_rope_dimension_count(8), "8 are rotated"),
    ],
)
def test_what_is_not_supported_is_refused(
    tiny: Callable[..., Any],
    write_gguf: Callable[..., Path],
    architecture: str,
    edit: Callable[[gguf.GGUFWriter], None],
    words: str,
) -> None:
    path = write_gguf(tiny("LlamaForCausalLM"), architecture, edit=edit)
    with pytest.raises(ModelError, match=words):
        gguf_config.config(GGUFFile(path), "float16")
